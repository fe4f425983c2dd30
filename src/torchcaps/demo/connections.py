"""HTTP connections with time limits, and with room for new ones when many clients keep theirs open without asking."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from torchcaps.demo.guard import HEADERS, ServiceMetrics, problem_body

MOST_CONNECTIONS = 200
REQUEST_SECONDS = 10.0  # for the head of a request to arrive; its body has UPLOAD_SECONDS
NEW_SECONDS = 1.0  # in which a client that has just connected is expected to ask
IDLE_SECONDS = 20.0  # between two requests, and for a client to read its answer


class Connection(H11Protocol):
    """An HTTP/1.1 connection that is closed when its client keeps the service waiting.

    The limits apply while the client has to act: until the head of a request has arrived, between two requests, and
    while an answer is not read. When there are too many connections, a new one takes the place of one that waits for
    its client: of the address with the most of them, the one that was silent for the longest time, and rather one on
    which nothing was asked so far. Connections whose request is being answered are never closed.
    """

    _asked = False  # whether a request was answered
    _timer: asyncio.TimerHandle | None = None
    _between_requests = False
    heard = 0.0  # when the client sent something, or its answer was complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.heard = self.loop.time()
        self._drop_after(REQUEST_SECONDS)
        self._make_room()

    def data_received(self, data: bytes) -> None:
        self.heard = self.loop.time()
        if self._between_requests:
            self._between_requests = False
            self._drop_after(REQUEST_SECONDS)
        super().data_received(data)
        self._stop_timer_while_answering()

    def on_response_complete(self) -> None:
        self.heard = self.loop.time()
        self._asked = self._between_requests = True
        self._drop_after(IDLE_SECONDS)
        super().on_response_complete()  # may begin with the next request, if it is here already
        self._stop_timer_while_answering()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._drop_after(IDLE_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_timer_while_answering()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, with the same headers as all answers."""
        self._metrics.note("other", 400, 0.0)
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):  # in the middle of another answer
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
        if len(connections) <= MOST_CONNECTIONS:
            return
        waiting = [each for each in connections if each is not self and each._waits_for_client]
        addresses = Counter(each._address for each in waiting)
        new = self.loop.time() - NEW_SECONDS
        if waiting:
            max(
                waiting,
                key=lambda each: (addresses[each._address], not each._asked and each.heard < new, -each.heard),
            )._drop("full")

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _drop_after(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, self._drop, "time")

    def _stop_timer_while_answering(self) -> None:
        # While the body of a request arrives, the guard watches the time and answers when it is up.
        if self.cycle is not None and not self.cycle.response_complete and not self.flow.write_paused:
            self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop(self, reason: str) -> None:
        self._metrics.dropped[reason] += 1
        self.transport.abort()  # close() would wait for a client that does not read
