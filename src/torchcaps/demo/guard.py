"""Middleware for every request and response: limits, authentication, security headers and Prometheus metrics."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from torchcaps.demo.service import Worker
from torchcaps.demo.uploads import form_to_json, is_form
from torchcaps.errors import TorchcapsError

BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class ServiceMetrics:
    """Counts of requests by path and status, and their durations. Only used in the thread of the event loop."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.within: Counter[tuple[str, float]] = Counter()
        self.dropped: Counter[str] = Counter()  # closed connections, by reason

    def record(self, path: str, status: int, seconds: float) -> None:
        """Count a request. ``path`` must be a path of the service: clients must not fill the memory with names."""
        self.requests[path, status] += 1
        self.seconds[path] += seconds
        for bucket in BUCKETS:
            self.within[path, bucket] += seconds <= bucket

    def text(self, workers: Mapping[str, Worker]) -> str:
        """Return all metrics in the Prometheus text format."""
        lines = ["# TYPE torchcaps_requests_total counter"]
        for (path, status), count in sorted(self.requests.items()):
            lines.append(f'torchcaps_requests_total{{path="{path}",status="{status}"}} {count}')
        lines.append("# TYPE torchcaps_request_seconds histogram")
        for path, total in sorted(self.seconds.items()):
            count = sum(number for (own, _), number in self.requests.items() if own == path)
            for bucket in BUCKETS:
                line = f'torchcaps_request_seconds_bucket{{path="{path}",le="{bucket}"}} {self.within[path, bucket]}'
                lines.append(line)
            lines.append(f'torchcaps_request_seconds_bucket{{path="{path}",le="+Inf"}} {count}')
            lines.append(f'torchcaps_request_seconds_sum{{path="{path}"}} {total:.6f}')
            lines.append(f'torchcaps_request_seconds_count{{path="{path}"}} {count}')
        lines.append("# TYPE torchcaps_connections_dropped_total counter")
        for reason, count in sorted(self.dropped.items()):
            lines.append(f'torchcaps_connections_dropped_total{{reason="{reason}"}} {count}')
        state = {
            "torchcaps_waiting": ("gauge", {name: worker.waiting for name, worker in workers.items()}),
            "torchcaps_batches_total": ("counter", {name: worker.batches for name, worker in workers.items()}),
            "torchcaps_answered_total": ("counter", {name: worker.processed for name, worker in workers.items()}),
        }
        for metric, (kind, values) in state.items():
            lines.append(f"# TYPE {metric} {kind}")
            lines += [f'{metric}{{model="{name}"}} {value}' for name, value in values.items()]
        memory = resident_bytes()
        if memory is not None:
            lines += ["# TYPE process_resident_memory_bytes gauge", f"process_resident_memory_bytes {memory}"]
        return "\n".join(lines) + "\n"


def resident_bytes() -> int | None:
    """Return the resident memory of this process, or None if the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * 4096


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger(__name__)
MAX_BYTES = 4_000_000  # of a request
MAX_VALUES = 50_000  # in a request: enough for three channels of 128 x 128 pixels
MAX_QUOTES = 200  # in a request: two per key or string
# Requests in progress at the same time. Fewer than the connections, so that there is always a connection that waits for
# its client; and fewer per address than the queue of a model, so that other addresses find room in it.
MAX_REQUESTS = 150
MAX_PER_ADDRESS = 100
UPLOAD_SECONDS = 15.0
# Nothing from another host, nothing inline, no frames.
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
    """ASGI middleware that checks requests, adds headers to responses and counts both.

    Args:
        app: the service.
        metrics: where requests are counted.
        paths: the paths of the service; all others are counted together.
        hosts: accepted host names; None for any. They protect a service on loopback against DNS rebinding.
        token: what clients must send as ``Authorization: Bearer TOKEN``; None for no authentication.
        public_paths: paths that need no token.
        max_values: maximum number of values in a request.
    """

    def __init__(
        self,
        app: App,
        metrics: ServiceMetrics,
        paths: Iterable[str],
        hosts: Iterable[str] | None,
        token: str | None = None,
        public_paths: Iterable[str] = (),
        max_values: int = MAX_VALUES,
    ) -> None:
        self.app, self.metrics, self.paths = app, metrics, frozenset(paths)
        self.hosts = None if hosts is None else frozenset(hosts)
        self.token, self.public_paths, self.max_values = token, frozenset(public_paths), max_values
        self._in_progress: Counter[str] = Counter()  # requests by client address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, started = time.perf_counter(), 500, False

        async def guarded_send(message: MutableMapping[str, Any]) -> None:
            nonlocal status, started
            if message["type"] == "http.response.start":
                status, started = message["status"], True
                present = {name for name, _ in message["headers"]}
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(pair for pair in extra if pair[0] not in present)]
            await send(message)

        try:
            await self._admit(scope, receive, guarded_send)
        except asyncio.CancelledError:
            if started:
                raise
            await refuse(guarded_send, 503, "the service is shutting down")
        except Exception:
            # Starlette and uvicorn would respond too, but without our headers.
            log.exception("%s %s failed", scope["method"], scope["path"])
            if started:
                raise
            await refuse(guarded_send, 500, "internal error: see the log of the service")
        finally:
            path = scope["path"] if scope["path"] in self.paths else "other"
            self.metrics.record(path, status, time.perf_counter() - began)

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1").rsplit(":", 1)
        name = host[0] if len(host) == 2 and host[1].isdigit() else ":".join(host)
        if self.hosts is not None and name.lower() not in self.hosts:
            await refuse(send, 421, "unknown host name")
            return
        if not self._is_authorized(scope["path"], headers.get(b"authorization", b"")):
            await refuse(send, 401, "this service requires a token: send 'Authorization: Bearer TOKEN'")
            return
        if scope["method"] in ("GET", "HEAD"):
            await self._answer(scope, receive, send)
            return
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > MAX_BYTES:
            await refuse(send, 413, f"a request may have at most {MAX_BYTES:,} bytes")
            return
        try:
            body = await asyncio.wait_for(read_body(receive), UPLOAD_SECONDS)
        except TimeoutError:
            await refuse(send, 408, f"the request did not arrive within {UPLOAD_SECONDS:.0f} seconds")
            return
        if body is None:
            await refuse(send, 413, f"a request may have at most {MAX_BYTES:,} bytes")
            return
        if is_form(kind := headers.get(b"content-type", b"").decode("latin-1")):
            try:
                body = form_to_json(body, kind)
            except TorchcapsError as error:
                await refuse(send, 422, str(error))
                return
            others = [pair for pair in scope["headers"] if pair[0] not in (b"content-type", b"content-length")]
            scope["headers"] = [*others, (b"content-type", b"application/json")]
        # Counting takes a millisecond. Parsing hundreds of thousands of keys takes seconds, and blocks all other
        # requests in whichever thread it runs.
        if body.count(b",") > self.max_values or body.count(b'"') > MAX_QUOTES:
            sentence = f"a request may have at most {self.max_values:,} values, and {MAX_QUOTES // 2} keys and strings"
            await refuse(send, 413, sentence)
            return
        await self._answer(scope, replay(body, receive), send)

    def _is_authorized(self, path: str, authorization: bytes) -> bool:
        if self.token is None or path in self.public_paths:
            return True
        scheme, _, given = authorization.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self.token.encode())

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a complete request to the service, unless too many are in progress."""
        address = scope["client"][0] if scope.get("client") else ""
        if self._in_progress.total() >= MAX_REQUESTS:
            await refuse(send, 503, "too many requests are waiting: retry in a second")
            return
        if self._in_progress[address] >= MAX_PER_ADDRESS:
            await refuse(send, 429, f"{MAX_PER_ADDRESS} requests from your address are waiting: retry in a second")
            return
        self._in_progress[address] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._in_progress[address] -= 1
            if not self._in_progress[address]:
                del self._in_progress[address]


async def read_body(receive: Receive) -> bytes | None:
    """Return the whole body; None if it is too long or the client disconnected."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        part = message.get("body", b"")
        size += len(part)
        if size <= MAX_BYTES:
            parts.append(part)
        # Some more is read and dropped: a client that is cut off while sending never sees the response.
        if size > 4 * MAX_BYTES:
            return None
        if not message.get("more_body"):
            return b"".join(parts) if size <= MAX_BYTES else None


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a receive function that yields a body that was already read."""
    given = False

    async def again() -> MutableMapping[str, Any]:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def problem_body(sentence: str) -> bytes:
    """Return the JSON body of an error response."""
    return json.dumps({"detail": sentence}).encode()


async def refuse(send: Send, status: int, sentence: str) -> None:
    """Send an error response with one sentence, and close the connection."""
    content = problem_body(sentence)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
        (b"connection", b"close"),
    ]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status in (429, 503):
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
