"""What the service counts about itself, in the text format that Prometheus reads."""

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

# MERGED What every request passes first and every answer last: limits, counting, security headers.
BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class ServiceMetrics:
    """Requests by path and status, and how long they took. Used by the event loop's one thread only."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.within: Counter[tuple[str, float]] = Counter()
        self.dropped: Counter[str] = Counter()  # connections whose client kept the service waiting, by reason

    def note(self, path: str, status: int, seconds: float) -> None:
        """Count a request; ``path`` is one of the service's own, so that nobody can fill the memory with names."""
        self.requests[path, status] += 1
        self.seconds[path] += seconds
        for bucket in BUCKETS:
            self.within[path, bucket] += seconds <= bucket

    def text(self, workers: Mapping[str, Worker]) -> str:
        """Everything, line by line."""
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
            "torchcaps_answered_total": ("counter", {name: worker.worked for name, worker in workers.items()}),
        }
        for metric, (kind, values) in state.items():
            lines.append(f"# TYPE {metric} {kind}")
            lines += [f'{metric}{{model="{name}"}} {value}' for name, value in values.items()]
        memory = resident_bytes()
        if memory is not None:
            lines += ["# TYPE process_resident_memory_bytes gauge", f"process_resident_memory_bytes {memory}"]
        return "\n".join(lines) + "\n"


def resident_bytes() -> int | None:
    """Memory that this process holds, where the system tells it."""
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
MOST_BYTES = 4_000_000  # of a request
MOST_VALUES = 50_000  # in a request: an image of three planes of 128 x 128 pixels, and some more
MOST_QUOTES = 200  # in a request: two for each name and each text
# Requests that are answered at the same time. Fewer than there may be connections, so that there is always one that
# waits for its client; and fewer for one address than may wait for a model, so that others find room in the queue.
MOST_REQUESTS = 150
MOST_PER_ADDRESS = 100
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
        token: what a client must send as ``Authorization: Bearer TOKEN``; None: nothing.
        public_paths: paths that need no token.
        most_values: numbers, names and texts in a request.
    """

    def __init__(
        self,
        app: App,
        metrics: ServiceMetrics,
        paths: Iterable[str],
        hosts: Iterable[str] | None,
        token: str | None = None,
        public_paths: Iterable[str] = (),
        most_values: int = MOST_VALUES,
    ) -> None:
        self.app, self.metrics, self.paths = app, metrics, frozenset(paths)
        self.hosts = None if hosts is None else frozenset(hosts)
        self.token, self.public_paths, self.most_values = token, frozenset(public_paths), most_values
        self._answering: Counter[str] = Counter()  # requests by client address

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
            await refuse(guarded_send, 503, "the service is being stopped")
        except Exception:
            # Starlette and uvicorn would answer as well, but without our headers.
            log.exception("%s %s failed", scope["method"], scope["path"])
            if started:
                raise
            await refuse(guarded_send, 500, "the service made a mistake: its log says which")
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
        if not self._may_ask(scope["path"], headers.get(b"authorization", b"")):
            await refuse(send, 401, "this service needs its token: send 'Authorization: Bearer TOKEN'")
            return
        if scope["method"] in ("GET", "HEAD"):
            await self._answer(scope, receive, send)
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
        # Counting takes a millisecond. Parsing takes seconds if there are hundreds of thousands of names, and nobody is
        # answered meanwhile, whichever thread does it.
        if body.count(b",") > self.most_values or body.count(b'"') > MOST_QUOTES:
            sentence = f"a request may have {self.most_values:,} values at most, and {MOST_QUOTES // 2} names and texts"
            await refuse(send, 413, sentence)
            return
        await self._answer(scope, replay(body, receive), send)

    def _may_ask(self, path: str, authorization: bytes) -> bool:
        if self.token is None or path in self.public_paths:
            return True
        scheme, _, given = authorization.partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self.token.encode())

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the service answer a request that has arrived, unless it has too many in hand."""
        address = scope["client"][0] if scope.get("client") else ""
        if self._answering.total() >= MOST_REQUESTS:
            await refuse(send, 503, "too many requests are waiting: come again in a second")
            return
        if self._answering[address] >= MOST_PER_ADDRESS:
            await refuse(send, 429, f"{MOST_PER_ADDRESS} requests of your address are waiting: come again in a second")
            return
        self._answering[address] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._answering[address] -= 1
            if not self._answering[address]:
                del self._answering[address]


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


def problem_body(sentence: str) -> bytes:
    """The body of an answer that says why there is none."""
    return json.dumps({"detail": sentence}).encode()


async def refuse(send: Send, status: int, sentence: str) -> None:
    """An answer without the service: one sentence, and the connection is closed."""
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
