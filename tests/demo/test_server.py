"""Slow and idle clients are disconnected and do not affect others."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from torchcaps.demo import guard, server
from torchcaps.demo.guard import Guard, ServiceMetrics

SECONDS = 5  # until an answer must be there
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
OPENINGS = {
    "silent": b"",
    "unfinished head": b"GET /health HTTP/1.1\r\nHost: local",
    "unfinished body": b"POST /api/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
    "kept alive": GET,
}


def connect(address: str, source: str = "127.0.0.1") -> socket.socket:
    host, _, port = address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=SECONDS, source_address=(source, 0))


def answer(stream: socket.socket) -> None:
    """Send one request on an open connection."""
    stream.sendall(GET)
    read = b""
    while not read.endswith(b'{"status":"ok"}'):
        part = stream.recv(4096)
        assert part, "the connection was closed"
        read += part


def read_to_end(stream: socket.socket) -> bytes:
    """Read until the service closes the connection."""
    parts = []
    try:
        while part := stream.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("opening", OPENINGS)
def test_300_idle_connections_do_not_block_others(address: str, stack: ExitStack, opening: str) -> None:
    for _ in range(300):
        stream = stack.enter_context(connect(address))
        stream.sendall(OPENINGS[opening])
    with httpx.Client(base_url=address, timeout=SECONDS) as client:
        assert client.get("/health").status_code == 200
        image = [[0.0] * 28] * 28
        assert client.post("/api/predict", json={"model": "capsnet-mnist-laptop", "image": image}).status_code == 200
        assert re.search(r'connections_dropped_total\{reason="full"\} \d\d', client.get("/metrics").text)


def test_connection_limits_are_per_address(address: str, stack: ExitStack) -> None:
    try:
        stack.enter_context(connect(address, "127.0.0.2"))
    except OSError:
        pytest.skip("this system has no second loopback address")
    early = stack.enter_context(connect(address))
    answer(early)
    many = [stack.enter_context(connect(address, "127.0.0.2")) for _ in range(300)]
    answer(many[-1])  # so that all of them were accepted
    answer(early)  # idle for longer than all others, and still connected


def test_active_clients_are_kept_before_idle_ones(
    address: str, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "NEW_SECONDS", 0.0)
    early = stack.enter_context(connect(address))
    answer(early)
    many = [stack.enter_context(connect(address)) for _ in range(300)]
    answer(many[-1])
    answer(early)


@pytest.mark.parametrize("opening", ["silent", "unfinished head", "kept alive"])
def test_idle_connections_are_closed(address: str, monkeypatch: pytest.MonkeyPatch, opening: str) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.2)
    monkeypatch.setattr(server, "IDLE_SECONDS", 0.2)
    with connect(address) as stream:
        stream.sendall(OPENINGS[opening])
        assert read_to_end(stream).count(b"HTTP/1.1 200 OK") == (opening == "kept alive")


def test_a_byte_now_and_then_does_not_extend_the_time_limit(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.3)
    with connect(address) as stream:
        answer(stream)
        sent = 0
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for sent in range(60):  # noqa: B007
                stream.sendall(b"G")
                time.sleep(0.05)
    assert sent < 59  # 3 seconds


def dropped(client: httpx.Client) -> int:
    """Number of connections closed after a timeout."""
    found = re.search(r'connections_dropped_total\{reason="time"\} (\d+)', client.get("/metrics").text)
    return int(found[1]) if found else 0


def test_unread_responses_are_dropped(address: str, client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "IDLE_SECONDS", 0.3)
    before = dropped(client)
    with connect(address) as stream:
        stream.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1500)  # more than buffers hold
        end = time.monotonic() + SECONDS
        while dropped(client) == before:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_malformed_requests_get_headers_and_are_counted(address: str, client: httpx.Client) -> None:
    with connect(address) as stream:
        stream.sendall(b"NONSENSE\r\n\r\n")
        answer = read_to_end(stream)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"content-security-policy: default-src 'none'" in answer
    assert b'{"detail":' in answer
    assert 'torchcaps_requests_total{path="other",status="400"}' in client.get("/metrics").text


@pytest.mark.parametrize(("limit", "status"), [("MAX_REQUESTS", 503), ("MAX_PER_ADDRESS", 429)])
def test_too_many_requests_at_once(monkeypatch: pytest.MonkeyPatch, limit: str, status: int) -> None:
    """The error response has the same headers as any other, and is counted."""
    monkeypatch.setattr(guard, limit, 2)
    metrics, gate = ServiceMetrics(), asyncio.Event()

    async def app(_: guard.Scope, __: guard.Receive, send: guard.Send) -> None:
        await gate.wait()
        await guard.refuse(send, 200, "done")

    guarded = Guard(app, metrics, paths=["/slow"], hosts=None)

    async def get(address: str) -> httpx.Response:
        transport = httpx.ASGITransport(guarded, client=(address, 1))  # type: ignore[arg-type]
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get("/slow")

    async def scene() -> tuple[list[httpx.Response], httpx.Response]:
        first = [asyncio.create_task(get("10.0.0.1")) for _ in range(2)]
        await asyncio.sleep(0.05)
        refused = await get("10.0.0.1")
        other = asyncio.create_task(get("10.0.0.2"))
        await asyncio.sleep(0.05)
        gate.set()
        return [*await asyncio.gather(*first, other), await get("10.0.0.1")], refused

    answers, refused = asyncio.run(scene())
    other = 503 if status == 503 else 200
    assert [each.status_code for each in answers] == [200, 200, other, 200]
    assert refused.status_code == status
    assert refused.headers["retry-after"] == "1"
    assert refused.headers["x-content-type-options"] == "nosniff"
    assert metrics.requests["/slow", status] >= 1
