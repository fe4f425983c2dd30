"""What every request passes first and every answer last: limits, counting, security headers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from torchcaps.demo.metrics import Metrics

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_BYTES = 4_000_000  # of a request
UPLOAD_SECONDS = 15.0
# Nothing from another host, nothing inline, nothing that frames or is framed.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
LOCAL_NAMES = ("127.0.0.1", "localhost", "[::1]")


class Guard:
    """Wraps the service.

    Args:
        app: the service.
        metrics: where requests are counted.
        paths: the paths that the service has; all others are counted as one.
        hosts: names by which the service may be called; None: any. A page of another site cannot reach a service on
            loopback through a name of its own that leads here.
    """

    def __init__(self, app: App, metrics: Metrics, paths: Iterable[str], hosts: Iterable[str] | None) -> None:
        self.app, self.metrics, self.paths = app, metrics, frozenset(paths)
        self.hosts = None if hosts is None else frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def guarded_send(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present = {name for name, _ in message["headers"]}
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(pair for pair in extra if pair[0] not in present)]
            await send(message)

        try:
            await self._admit(scope, receive, guarded_send)
        finally:
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.metrics.note(path, status, time.perf_counter() - began)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").rsplit(":", 1)
        name = host[0] if len(host) == 2 and host[1].isdigit() else ":".join(host)
        if self.hosts is not None and name.lower() not in self.hosts:
            await refuse(send, 421, "this service answers to its own name only")
            return
        if scope["method"] in ("GET", "HEAD"):
            await self.app(scope, receive, send)
            return
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > MOST_BYTES:
            await refuse(send, 413, f"a request may have {MOST_BYTES:,} bytes at most")
            return
        try:
            body = await asyncio.wait_for(read_body(receive), UPLOAD_SECONDS)
        except TimeoutError:
            await refuse(send, 408, f"the request did not arrive within {UPLOAD_SECONDS:.0f} seconds")
            return
        if body is None:
            await refuse(send, 413, f"a request may have {MOST_BYTES:,} bytes at most")
            return
        await self.app(scope, replay(body, receive), send)


async def read_body(receive: Receive) -> bytes | None:
    """The whole body; None if it is too long or its sender went away."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part = message.get("body", b"")
        size += len(part)
        if size <= MOST_BYTES:
            parts.append(part)
        # Somewhat more is read and dropped: a sender who is cut off in the middle never sees the refusal.
        if size > 4 * MOST_BYTES:
            return None
        if not message.get("more_body"):
            return b"".join(parts) if size <= MOST_BYTES else None


def replay(body: bytes, receive: Receive) -> Receive:
    """A body that was read already, as the service expects to receive it."""
    given = False

    async def again() -> MutableMapping[str, Any]:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def refuse(send: Send, status: int, sentence: str) -> None:
    """An answer without the service: one sentence, and the connection is closed."""
    content = json.dumps({"detail": sentence}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
