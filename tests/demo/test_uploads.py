"""Forms with image files become JSON requests."""

from __future__ import annotations

import base64
import json

import pytest

from torchcaps.demo.uploads import MAX_PARTS, form_to_json
from torchcaps.errors import TorchcapsError

TYPE = 'multipart/form-data; boundary="a b"'


def form(*parts: bytes) -> bytes:
    return b"".join(b"--a b\r\n" + part + b"\r\n" for part in parts) + b"--a b--\r\n"


def field(name: str, content: bytes) -> bytes:
    return f'Content-Disposition: form-data; name="{name}"; filename="x"\r\nX: y\r\n\r\n'.encode() + content


def test_content_is_kept_byte_by_byte() -> None:
    content = bytes(range(256)) + b"\r\n\r\n--a\r\n" + bytes(range(255, -1, -1))
    request = json.loads(form_to_json(form(field("model", b" a "), field("image", content)), TYPE))
    assert request == {"model": "a", "image": base64.b64encode(content).decode()}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--a b--",
        form(),
        form(field("image", b"x"), field("image", b"y")),
        form(field("label", b"3"), field("image", b"x")),
        form(b"no header"),
        form(b"Content-Disposition: form-data\r\n\r\nx"),
        form(*[field("image", b"x")] * (MAX_PARTS + 1)),
        form(field("image", b"x"))[:-8],
    ],
)
def test_other_forms_are_refused(body: bytes) -> None:
    with pytest.raises(TorchcapsError, match="form"):
        form_to_json(body, TYPE)
