"""Malicious requests are rejected with a clear error, and the service continues."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import socket
import struct
import time
import zlib

import httpx
import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from torchcaps.demo import guard
from torchcaps.demo.app import create_app
from torchcaps.demo.schemas import ImageRequest
from torchcaps.demo.served import ServedModel

NAME = "capsnet-mnist-laptop"
SECONDS = 5  # until an answer must be there


def png(width: int, height: int, content: bytes) -> bytes:
    """A PNG file whose header claims any size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(content)) + chunk(b"IEND", b"")


def picture(kind: str = "PNG", size: tuple[int, int] = (28, 28)) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


def send(client: httpx.Client, image: object) -> httpx.Response:
    return client.post("/api/predict", json={"model": NAME, "image": image}, timeout=SECONDS)


def in_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP", "BMP"])
def test_pictures_are_taken(client: httpx.Client, kind: str) -> None:
    answer = send(client, in_base64(picture(kind, (61, 40))))
    assert answer.status_code == 200, answer.text


HOSTILE = {
    "10,000 x 10,000": png(10_000, 10_000, bytes(10_001 * 100)),
    "claims terabytes": png(2**31 - 1, 2**31 - 1, b""),
    "bomb": png(4000, 3999, bytes(4001 * 3999)) + b"x",  # 16 MB out of a few kB, just within what is decoded
    "larger bomb": png(4001, 4001, bytes(4002 * 4001)),
    "truncated": picture()[:-400],
    "truncated header": picture()[:20],
    "wrong type": b"%PDF-1.7 not a picture",
    "script": b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
    "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage",
    "nothing": b"",
    "one byte": b"\x00",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pictures(client: httpx.Client, name: str) -> None:
    answer = send(client, in_base64(HOSTILE[name]))
    assert answer.status_code in ((200, 422) if name == "bomb" else (422,)), answer.text
    assert client.get("/health", timeout=SECONDS).status_code == 200


def image_of(pixel: bytes) -> bytes:
    """A request whose image has this text for every pixel."""
    row = b"[" + b",".join([pixel] * 28) + b"]"
    return b'{"model": "capsnet-mnist-laptop", "image": [' + b",".join([row] * 28) + b"]}"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b'{"model": "capsnet-mnist-laptop", "image": NaN}',
        image_of(b"NaN"),
        image_of(b"1e999"),
        b'{"model": "capsnet-mnist-laptop", "image": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"model": "\\ud800", "image": "\\udfff"}',
        b'{"\\ud800": 1}',
        b'{"model": ' + b"9" * 100_000 + b"}",
        b"\xff\xfe\x00",
        b'{"model": "../../../etc/passwd", "image": "x"}',
    ],
    ids=lambda body: repr(body[:40]),
)
def test_hostile_bodies(client: httpx.Client, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    for path in ("/api/predict", "/api/reconstruct", "/api/routing", "/api/attack"):
        answer = client.post(path, content=body, headers=headers, timeout=SECONDS)
        assert 400 <= answer.status_code < 500, answer.text
        assert answer.json()["detail"]


def test_nan_in_a_pose(client: httpx.Client) -> None:
    body = json.dumps({"model": NAME, "pose": [[float("nan")] * 16] * 10, "label": 0})
    answer = client.post("/api/reconstruct", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422


def test_too_large_is_refused_before_it_is_read(address: str, client: httpx.Client) -> None:
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS) as stream:
        stream.sendall(
            f"POST /api/predict HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {10**12}\r\n\r\n".encode()
        )
        assert b" 413 " in stream.recv(200)
    without_length = client.post("/api/predict", content=(b"x" * 65_536 for _ in range(100)), timeout=SECONDS)
    assert without_length.status_code == 413
    assert client.get("/health").status_code == 200


def test_a_slow_sender_is_disconnected(address: str, client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "UPLOAD_SECONDS", 0.3)
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=SECONDS) as stream:
        stream.sendall(f"POST /api/predict HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100\r\n\r\n{{".encode())
        began = time.perf_counter()
        assert b" 408 " in stream.recv(200)
        assert time.perf_counter() - began < SECONDS
    assert client.get("/health").status_code == 200


def test_headers_are_strict_everywhere(client: httpx.Client) -> None:
    for path in ("/", "/page/main.js", "/docs", "/api/models", "/openapi.json", "/nowhere", "/health"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
    foreign = {"origin": "http://evil.test", "access-control-request-method": "POST"}
    asked = client.options("/api/predict", headers=foreign)
    assert asked.status_code == 405
    assert "access-control-allow-origin" not in asked.headers


def test_other_host_names_are_refused(client: httpx.Client) -> None:
    """DNS rebinding: another site cannot reach the service through its own host name."""
    assert client.get("/api/models", headers={"host": "evil.test"}).status_code == 421
    assert client.get("/api/models", headers={"host": "localhost:1234"}).status_code == 200


@pytest.mark.parametrize("path", ["/page/../app.py", "/page/%2e%2e/app.py", "/page//etc/passwd", "/docs/../schemas.py"])
def test_no_path_leads_to_the_file_system(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404
    name = client.get("/api/samples", params={"model": path})
    assert name.status_code in (404, 422)


@pytest.mark.parametrize("path", ["/api/predict", "/api/reconstruct", "/api/routing", "/api/attack"])
@pytest.mark.parametrize("content", ["names", "numbers"])
def test_more_values_than_a_question_has_are_refused_unparsed(client: httpx.Client, path: str, content: str) -> None:
    """Parsing 4 MB of keys took seconds and blocked other requests."""
    if content == "names":
        body = b"{" + b",".join(b'"%d":1' % number for number in range(300_000)) + b"}"
    else:
        body = b'{"model": "x", "pose": [[' + b",".join([b"1"] * 1_500_000) + b"]]}"
    assert len(body) < guard.MAX_BYTES
    answer = client.post(path, content=body, headers={"content-type": "application/json"}, timeout=SECONDS)
    assert answer.status_code == 413
    assert "values" in answer.json()["detail"]


@pytest.mark.parametrize("image", [[[None] * 128] * 128, [[[None] * 128] * 128] * 3], ids=["plane", "planes"])
def test_a_wrong_image_is_one_error(image: object) -> None:
    """One error, not one for each pixel: formatting all of them would be slow."""
    with pytest.raises(ValidationError) as raised:
        ImageRequest.model_validate({"model": NAME, "image": image})
    assert raised.value.error_count() <= 3  # one for each form that an image may have


def test_internal_errors_have_headers_and_are_counted(shipped: list[ServedModel]) -> None:
    app = create_app(shipped[:1])

    @app.get("/fault")
    async def fault() -> None:
        raise RuntimeError("secret")

    async def scene() -> tuple[httpx.Response, str]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get("/fault"), (await client.get("/metrics")).text

    answer, metrics = asyncio.run(scene())
    assert answer.status_code == 500
    assert answer.json()["detail"]
    assert "secret" not in answer.text
    assert answer.headers["content-security-policy"] == guard.POLICY
    assert 'torchcaps_requests_total{path="other",status="500"} 1' in metrics
