"""One thread for one model: questions wait in a queue with a bound, and those that can go together do."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

BOUND = 128  # questions that may wait
TOGETHER = 32  # images in one pass
PATIENCE = 30.0  # seconds until a question is given up


class Busy(Exception):  # noqa: N818  (not a mistake: the client may come again)
    """The queue is full."""


@dataclass(frozen=True)
class Job:
    """A question that waits. ``work`` takes a list of payloads and gives a list of answers, in their order."""

    work: Callable[[list[Any]], list[Any]]
    payload: Any
    together: bool
    answer: asyncio.Future[Any]

    def settle(self, value: Any = None, error: BaseException | None = None) -> None:
        """Hand over an answer or an error, from the worker's thread; nobody may be waiting any more."""
        with contextlib.suppress(RuntimeError):  # the service was stopped meanwhile
            self.answer.get_loop().call_soon_threadsafe(self._settle, value, error)

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if self.answer.done():
            return
        if error is None:
            self.answer.set_result(value)
        else:
            self.answer.set_exception(error)


class Worker:
    """Works off the questions about one model, oldest first.

    While a batch is computed, the next one gathers: nobody waits for company, and company is used when it is there.
    """

    def __init__(self, name: str, *, bound: int = BOUND, together: int = TOGETHER, patience: float = PATIENCE) -> None:
        self.bound, self.together, self.patience = bound, together, patience
        self.batches = self.worked = 0  # passes, and questions in them
        self._jobs: deque[Job] = deque()
        self._ready = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=f"model {name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Questions in the queue."""
        return len(self._jobs)

    async def ask(self, work: Callable[[list[Any]], list[Any]], payload: Any, *, together: bool = False) -> Any:
        """Wait in the queue and for the answer; raises Busy if the queue is full, TimeoutError if it takes too long.

        Questions with the same ``work`` that are next to each other go in one call if both say ``together``.
        """
        job = Job(work, payload, together, asyncio.get_running_loop().create_future())
        with self._ready:
            if len(self._jobs) >= self.bound or self._stopped:
                raise Busy
            self._jobs.append(job)
            self._ready.notify()
        return await asyncio.wait_for(job.answer, self.patience)

    def stop(self) -> None:
        """End the thread after the batch in hand."""
        with self._ready:
            self._stopped = True
            self._ready.notify()

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended, but no longer than this."""
        self._thread.join(seconds)

    def _next(self) -> list[Job]:
        """The questions that are answered next; none once the worker is stopped."""
        with self._ready:
            self._ready.wait_for(lambda: self._jobs or self._stopped)
            batch: list[Job] = []
            while self._jobs and not self._stopped and len(batch) < self.together:
                job = self._jobs[0]
                if batch and not (job.together and batch[0].together and job.work == batch[0].work):
                    break
                self._jobs.popleft()
                if not job.answer.cancelled():  # else its client has given up
                    batch.append(job)
            return batch

    def _run(self) -> None:
        while not self._stopped:
            batch = self._next()
            if not batch:
                continue
            try:
                answers = batch[0].work([job.payload for job in batch])
            except Exception as error:
                for job in batch:
                    job.settle(error=error)
                continue
            finally:
                self.batches += 1
                self.worked += len(batch)
            for job, answer in zip(batch, answers, strict=True):
                job.settle(answer)
