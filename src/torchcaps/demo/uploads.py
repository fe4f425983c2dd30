"""Image files uploaded as a form (multipart/form-data), as ``curl -F`` and HTML forms send them.

A form becomes the JSON request with the same content, so that both are checked in the same way.
"""

from __future__ import annotations

import base64
import json
from email.message import Message
from typing import Any

from torchcaps.errors import TorchcapsError

FORM = "multipart/form-data"
FIELDS = ("image", "model")
MAX_PARTS = 10
UPLOAD_SCHEMA: dict[str, Any] = {
    "requestBody": {
        "content": {
            FORM: {
                "schema": {
                    "type": "object",
                    "properties": {
                        "image": {"type": "string", "format": "binary", "description": "An image file."},
                        "model": {"type": "string", "description": "Optional if there is only one model."},
                    },
                    "required": ["image"],
                }
            }
        }
    }
}


def is_form(content_type: str) -> bool:
    """Return whether a request with this content type is a form with files."""
    return content_type.partition(";")[0].strip().lower() == FORM


def form_to_json(body: bytes, content_type: str) -> bytes:
    """Convert a form with the file ``image``, and optionally a ``model``, to a JSON request."""
    request: dict[str, str] = {}
    for name, content in form_fields(body, _parameter(content_type, "boundary")):
        if name not in FIELDS or name in request:
            raise TorchcapsError(
                f"a form has a field 'image' with one image file, and optionally 'model'; got '{name}'"
            )
        is_file = name == "image"
        request[name] = base64.b64encode(content).decode() if is_file else content.decode("utf-8", "replace").strip()
    if not request.get("image"):
        raise TorchcapsError("the form has no image: send a file in the field 'image', as in curl -F image=@digit.png")
    return json.dumps(request).encode()


def form_fields(body: bytes, boundary: str) -> list[tuple[str, bytes]]:
    """Return the name and content of each field of a form."""
    if not boundary:
        raise TorchcapsError(f"a request of type {FORM} must name its boundary")
    parts = (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1", "replace"), MAX_PARTS)
    fields: list[tuple[str, bytes]] = []
    for part in parts[1:]:
        if part.startswith(b"--"):  # the end
            return fields
        head, found, content = part.partition(b"\r\n\r\n")
        lines = head.decode("utf-8", "replace").strip().split("\r\n")
        dispositions = [line.partition(":")[2] for line in lines if line.lower().startswith("content-disposition:")]
        name = _parameter(dispositions[0], "name") if found and dispositions else ""
        if not name:
            break
        fields.append((name, content))
    raise TorchcapsError("the form cannot be read: send it as curl -F image=@digit.png does")


def _parameter(header: str, name: str) -> str:
    """Return a parameter of a header such as ``form-data; name="image"``; empty if it is missing."""
    message = Message()
    message["content-type"] = header
    value = message.get_param(name, "")
    return value if isinstance(value, str) else ""
