"""One thread for one model: questions wait in a queue with a bound, and those that can go together do."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torchcaps.demo import answers
from torchcaps.demo.picture import read_request_image
from torchcaps.demo.schemas import (
    AttackRequest,
    AttackResponse,
    ImageRequest,
    LabeledRequest,
    PredictResponse,
    ReconstructRequest,
    ReconstructResponse,
    RoutingResponse,
    SampleImages,
)
from torchcaps.demo.served import ServedModel
from torchcaps.errors import TorchcapsError, unknown_name

# MERGED The models of a service with a worker each: what a request asks is brought to the right one.
BOUND = 128  # questions that may wait
TOGETHER = 32  # images in one pass
PATIENCE = 30.0  # seconds until a question is given up


class QueueFullError(Exception):
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
        """Queue a job and wait for its answer; raises QueueFullError or TimeoutError.

        Questions with the same ``work`` that are next to each other go in one call if both say ``together``.
        """
        job = Job(work, payload, together, asyncio.get_running_loop().create_future())
        with self._ready:
            if len(self._jobs) >= self.bound or self._stopped:
                raise QueueFullError
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


DECODERS = 2  # pictures that are decoded at the same time
DECODE_SECONDS = 10.0
FAREWELL = 1.0  # seconds that workers have to end


class UnknownModelError(TorchcapsError):
    """A request names a model that is not served."""


class Service:
    """Answers questions about models. Only methods that wait may be called from the event loop."""

    def __init__(self, served: list[ServedModel]) -> None:
        if not served:
            raise TorchcapsError("there is no model to serve: name the folder of a trained run")
        self.served = {each.name: each for each in served}
        self.infos = [each.info for each in served]
        self.workers = {name: Worker(name) for name in self.served}
        # The same function object for all requests: that is how a worker knows which of them can go together.
        self._predict = {name: partial(answers.predict_batch, each) for name, each in self.served.items()}
        self._decoding = asyncio.Semaphore(DECODERS)
        # A dataset may have to be fetched first: for that long, pictures shall find a thread to be decoded in.
        self._sampling = ThreadPoolExecutor(1, thread_name_prefix="samples")

    def find(self, name: str) -> ServedModel:
        """The model of that name."""
        if name not in self.served:
            raise UnknownModelError(str(unknown_name("model", name, self.served)))
        return self.served[name]

    async def warm_up(self) -> None:
        """Send an image through every model, so that the first visitor finds all of it loaded and compiled."""
        blanks = [torch.zeros(each.model.image_shape) for each in self.served.values()]
        asked = zip(self.served, blanks, strict=True)
        waiting = [self.workers[name].ask(self._predict[name], blank, together=True) for name, blank in asked]
        await asyncio.gather(*waiting, return_exceptions=True)  # what goes wrong is told to whoever asks

    def stop(self) -> None:
        """End all workers; one that is in the middle of something long is left behind."""
        self._sampling.shutdown(wait=False, cancel_futures=True)
        end = time.monotonic() + FAREWELL
        for worker in self.workers.values():
            worker.stop()
        for worker in self.workers.values():
            worker.join(max(0.0, end - time.monotonic()))

    async def predict(self, question: ImageRequest) -> PredictResponse:
        """The answer to an image; images that wait for the same model go through it together."""
        image = await self._image(question)
        found: PredictResponse = await self.workers[question.model].ask(
            self._predict[question.model], image, together=True
        )
        return found

    async def reconstruct(self, question: ReconstructRequest) -> ReconstructResponse:
        """What the decoder draws of a pose."""
        found: ReconstructResponse = await self._alone(question.model, answers.reconstruct_pose, question)
        return found

    async def routing(self, question: LabeledRequest) -> RoutingResponse:
        """Where the votes came from."""
        found: RoutingResponse = await self._alone(
            question.model, answers.routing_maps, await self._image(question), question.label
        )
        return found

    async def attack(self, question: AttackRequest) -> AttackResponse:
        """The image under attack."""
        found: AttackResponse = await self._alone(
            question.model, answers.attack_image, await self._image(question), question
        )
        return found

    async def samples(self, name: str) -> SampleImages:
        """Test images of a model's dataset."""
        served = self.find(name)
        return await asyncio.get_running_loop().run_in_executor(self._sampling, lambda: served.samples)

    async def _image(self, question: ImageRequest) -> Tensor:
        shape = self.find(question.model).model.image_shape
        if not isinstance(question.image, str):
            return read_request_image(question, shape)
        async with self._decoding:  # a picture takes long enough to hold up everybody else
            return await asyncio.wait_for(asyncio.to_thread(read_request_image, question, shape), DECODE_SECONDS)

    async def _alone(self, name: str, work: Any, *arguments: Any) -> Any:
        served = self.find(name)
        return await self.workers[name].ask(lambda _: [work(served, *arguments)], None)
