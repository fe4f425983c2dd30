"""The HTTP server: its connections with time limits, the socket that it listens on, and the token that it requires."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import re
import socket
import sys
import threading
from collections import Counter
from typing import cast

import h11
import torch
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from torchcaps.demo.guard import HEADERS, LOCAL_NAMES, ServiceMetrics, problem_body
from torchcaps.errors import TorchcapsError

MAX_CONNECTIONS = 200
REQUEST_SECONDS = 10.0  # for the headers of a request to arrive; the limit for its body is UPLOAD_SECONDS
NEW_SECONDS = 1.0  # during which a client that has just connected counts as active
IDLE_SECONDS = 20.0  # between two requests, and for a client to read its response
KEEP_ALIVE_SECONDS = int(IDLE_SECONDS)
MIN_TOKEN_LENGTH = 16


class Connection(H11Protocol):
    """An HTTP/1.1 connection that is closed when its client takes too long.

    The time limits apply while the server waits for the client: until the headers of a request have arrived, between
    two requests, and while a response is not read. When there are too many connections, a new one replaces one that
    waits for its client: of the address with the most waiting connections, the one that was idle for the longest time,
    preferably one without any request so far. Connections whose request is being processed are never closed.
    """

    _served = False  # whether a request was answered
    _timer: asyncio.TimerHandle | None = None
    _between_requests = False
    last_active = 0.0  # when the client last sent data or a response was complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.last_active = self.loop.time()
        self._drop_after(REQUEST_SECONDS)
        self._make_room()

    def data_received(self, data: bytes) -> None:
        self.last_active = self.loop.time()
        if self._between_requests:
            self._between_requests = False
            self._drop_after(REQUEST_SECONDS)
        super().data_received(data)
        self._stop_timer_while_processing()

    def on_response_complete(self) -> None:
        self.last_active = self.loop.time()
        self._served = self._between_requests = True
        self._drop_after(IDLE_SECONDS)
        super().on_response_complete()  # may start the next request if it has already arrived
        self._stop_timer_while_processing()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._drop_after(IDLE_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_timer_while_processing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Respond to invalid HTTP, with the same headers as every response."""
        self._metrics.record("other", 400, 0.0)
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # another response is in progress
            self.transport.abort()
            return
        content = problem_body("this is not a valid HTTP request")
        headers = HEADERS | {"content-type": "application/json", "content-length": str(len(content))}
        response = h11.Response(
            status_code=400, headers=[*headers.items(), ("connection", "close")], reason=b"Bad Request"
        )
        for event in (response, h11.Data(data=content), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @property
    def _metrics(self) -> ServiceMetrics:
        return cast("ServiceMetrics", self.config.app.state.metrics)  # type: ignore[union-attr]

    @property
    def _waits_for_client(self) -> bool:
        cycle = self.cycle
        return cycle is None or cycle.response_complete or cycle.more_body or self.flow.write_paused

    def _make_room(self) -> None:
        connections = [each for each in self.connections if isinstance(each, Connection)]
        connections = [each for each in connections if not each.transport.is_closing()]
        if len(connections) <= MAX_CONNECTIONS:
            return
        waiting = [each for each in connections if each is not self and each._waits_for_client]
        addresses = Counter(each._address for each in waiting)
        recent = self.loop.time() - NEW_SECONDS
        if waiting:
            max(
                waiting,
                key=lambda each: (
                    addresses[each._address],
                    not each._served and each.last_active < recent,
                    -each.last_active,
                ),
            )._drop("full")

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _drop_after(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._drop, "time")

    def _stop_timer_while_processing(self) -> None:
        # While the body of a request arrives, the guard enforces the time limit and sends the response.
        if self.cycle is not None and not self.cycle.response_complete and not self.flow.write_paused:
            self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop(self, reason: str) -> None:
        self._metrics.dropped[reason] += 1
        self.transport.abort()  # close() would wait for the client to read


def share_cores(models: int) -> None:
    """Divide the CPU cores among the models, which run in one thread each."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // models))


def allowed_hosts(host: str) -> list[str] | None:
    """Return the host names that a service on this address accepts: local ones on loopback, otherwise any (None)."""
    return [*LOCAL_NAMES, host] if is_loopback(host) else None


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached only from this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"  # what another name resolves to may change


def check_token(host: str, token: str | None, *, no_auth: bool) -> None:
    """Raise an error if other machines could use the service without a token, or if the token is weak."""
    if token is None:
        if no_auth or is_loopback(host):
            return
        raise TorchcapsError(
            f"anyone who can reach {host} could use this service: set TORCHCAPS_TOKEN to a secret "
            "(python -c 'import secrets; print(secrets.token_urlsafe())' makes one), or add --no-auth"
        )
    if no_auth:
        raise TorchcapsError("--no-auth and a token were both given: give one of them, not both")
    if len(token) < MIN_TOKEN_LENGTH:
        raise TorchcapsError(f"the token has {len(token)} characters, but it needs at least {MIN_TOKEN_LENGTH}")
    if not re.fullmatch(r"[A-Za-z0-9._~+/=-]+", token):
        raise TorchcapsError("the token may only contain letters, digits and - . _ ~ + / =")


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket, or raise an error with the reason. Port 0 takes any free port."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise TorchcapsError(
            f"cannot listen on {host} port {port}: {error}. Choose another port with --port"
        ) from error
    # Connections inherit it. Without it, the second packet of a response waits 40 ms for the first to be acknowledged.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def make_server(app: FastAPI) -> uvicorn.Server:
    """Create the server; its ``run(sockets=[...])`` serves until it is interrupted."""
    settings = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        http=Connection,
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=3,
    )
    return uvicorn.Server(settings)


def serve_until_stopped(app: FastAPI, listening: socket.socket) -> None:
    """Serve on the socket until Ctrl-C, which uvicorn raises again although it is the normal way to stop."""
    with contextlib.suppress(KeyboardInterrupt):
        make_server(app).run(sockets=[listening])
    if threading.active_count() > 1:
        # A thread that reads a folder or compiles a model for its first image cannot be interrupted. A normal exit
        # would wait for the former, and abort the process in the middle of the latter.
        sys.stdout.flush()
        os._exit(0)
