"""Worker threads, one per model, with bounded queues and batching, and the service that dispatches requests to them."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from torchcaps.demo import answers
from torchcaps.demo.images import read_request_image
from torchcaps.demo.schemas import (
    AttackRequest,
    AttackResponse,
    ImageRequest,
    LabeledRequest,
    ModelInfo,
    PredictRequest,
    PredictResponse,
    ReconstructRequest,
    ReconstructResponse,
    RoutingResponse,
    SampleImages,
)
from torchcaps.demo.served import ServedModel
from torchcaps.errors import TorchcapsError, unknown_name

logger = logging.getLogger(__name__)

QUEUE_SIZE = 128
BATCH_SIZE = 32  # images per forward pass
TIMEOUT = 30.0  # seconds until a waiting request is given up
DECODERS = 2  # image files decoded at the same time
DECODE_SECONDS = 10.0
STOP_SECONDS = 1.0  # for all workers to stop


class QueueFullError(Exception):
    """The queue is full."""


@dataclass(frozen=True)
class QueuedRequest:
    """A queued request. ``work`` maps a list of payloads to a list of results, in the same order."""

    work: Callable[[list[Any]], list[Any]]
    payload: Any
    batchable: bool
    result: asyncio.Future[Any]

    def resolve(self, value: Any = None, error: BaseException | None = None) -> None:
        """Set the result or the error from the worker thread. The client may have given up in the meantime."""
        with contextlib.suppress(RuntimeError):  # the event loop was closed in the meantime
            self.result.get_loop().call_soon_threadsafe(self._resolve, value, error)

    def _resolve(self, value: Any, error: BaseException | None) -> None:
        if self.result.done():
            return
        if error is None:
            self.result.set_result(value)
        else:
            self.result.set_exception(error)


class Worker:
    """A thread that processes the requests for one model in order.

    Requests that arrive while a batch is computed form the next batch. No request waits for others to fill a batch.
    """

    def __init__(
        self, name: str, *, queue_size: int = QUEUE_SIZE, batch_size: int = BATCH_SIZE, timeout: float = TIMEOUT
    ) -> None:
        self.queue_size, self.batch_size, self.timeout = queue_size, batch_size, timeout
        self.batches = self.processed = 0  # number of batches, and of requests in them
        self._jobs: deque[QueuedRequest] = deque()
        self._ready = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=f"model {name}", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of requests in the queue."""
        return len(self._jobs)

    async def submit(self, work: Callable[[list[Any]], list[Any]], payload: Any, *, batchable: bool = False) -> Any:
        """Queue a request and wait for its result. Raises QueueFullError or TimeoutError.

        Consecutive ``batchable`` requests with the same ``work`` are processed in one call.
        """
        job = QueuedRequest(work, payload, batchable, asyncio.get_running_loop().create_future())
        with self._ready:
            if len(self._jobs) >= self.queue_size or self._stopped:
                raise QueueFullError
            self._jobs.append(job)
            self._ready.notify()
        return await asyncio.wait_for(job.result, self.timeout)

    def stop(self) -> None:
        """Stop the thread after the current batch."""
        with self._ready:
            self._stopped = True
            self._ready.notify()

    def join(self, seconds: float) -> None:
        """Wait up to this many seconds for the thread to end."""
        self._thread.join(seconds)

    def _next(self) -> list[QueuedRequest]:
        """Return the next batch; empty once the worker is stopped."""
        with self._ready:
            self._ready.wait_for(lambda: self._jobs or self._stopped)
            batch: list[QueuedRequest] = []
            while self._jobs and not self._stopped and len(batch) < self.batch_size:
                job = self._jobs[0]
                if batch and not (job.batchable and batch[0].batchable and job.work == batch[0].work):
                    break
                self._jobs.popleft()
                if not job.result.cancelled():  # the client has not given up
                    batch.append(job)
            return batch

    def _run(self) -> None:
        while not self._stopped:
            batch = self._next()
            if not batch:
                continue
            try:
                results = batch[0].work([job.payload for job in batch])
            except Exception as error:
                for job in batch:
                    job.resolve(error=error)
                continue
            finally:
                self.batches += 1
                self.processed += len(batch)
            for job, result in zip(batch, results, strict=True):
                job.resolve(result)


class UnknownModelError(TorchcapsError):
    """A request names a model that the service does not have."""


class Service:
    """Dispatches requests to the workers of the models. All coroutines run in the event loop and never block it."""

    def __init__(self, served: list[ServedModel], *, onnxruntime: bool = False) -> None:
        if not served:
            raise TorchcapsError("there is no model to serve: give the directory of a trained run")
        self.served = {each.name: each for each in served}
        self.workers = {name: Worker(name) for name in self.served}
        # One function object per model for all requests: a worker batches requests by comparing it.
        self._predict = {name: partial(answers.predict_batch, each) for name, each in self.served.items()}
        self._decoding = asyncio.Semaphore(DECODERS)
        # Loading samples may download a dataset first, and must not block the threads that decode images.
        self._sampling = ThreadPoolExecutor(1, thread_name_prefix="samples")
        self._exporting = ThreadPoolExecutor(1, thread_name_prefix="onnxruntime")
        self._onnxruntime = onnxruntime
        self._offers: dict[str, asyncio.Task[None]] = {}

    @property
    def infos(self) -> list[ModelInfo]:
        """Descriptions of all models."""
        return [each.info.model_copy(update={"runtime": each.runtime}) for each in self.served.values()]

    def find(self, name: str | None) -> ServedModel:
        """Return the model of that name. No name is needed if there is only one."""
        if name is None:
            if len(self.served) > 1:
                raise TorchcapsError(f"name a 'model', because there are several: {', '.join(self.served)}")
            return next(iter(self.served.values()))
        if name not in self.served:
            raise UnknownModelError(str(unknown_name("model", name, self.served)))
        return self.served[name]

    async def warm_up(self) -> None:
        """Run every model once, so that everything is loaded and compiled before the first request."""
        waiting = [
            self.workers[name].submit(self._predict[name], (torch.zeros(each.model.image_shape), []), batchable=True)
            for name, each in self.served.items()
        ]
        await asyncio.gather(*waiting, return_exceptions=True)  # errors are reported to later requests

    async def use_onnxruntime(self, name: str) -> None:
        """Let onnxruntime compute single predictions of a model, if it is faster and installed.

        A copy of the model is exported in a thread of its own, which takes seconds the first time. The worker compares.
        """
        from torchcaps.export import MODULES, OnnxInference  # takes long to import

        if not all(map(find_spec, MODULES)):
            return
        served = self.served[name]
        try:
            copied = copy.deepcopy(served.model)
            found = await asyncio.get_running_loop().run_in_executor(self._exporting, OnnxInference, copied)
            await self.workers[name].submit(
                lambda given: [predict.offer(found) for predict, found in given], (served.predict, found)
            )
        except Exception as error:
            logger.warning("onnxruntime is not used for %s: %s", name, error)

    def stop(self) -> None:
        """Stop all workers, without waiting for one that is busy for long."""
        for offer in self._offers.values():
            offer.cancel()
        for pool in (self._sampling, self._exporting):
            pool.shutdown(wait=False, cancel_futures=True)
        end = time.monotonic() + STOP_SECONDS
        for worker in self.workers.values():
            worker.stop()
        for worker in self.workers.values():
            worker.join(max(0.0, end - time.monotonic()))

    async def predict(self, request: PredictRequest) -> PredictResponse:
        """Classify an image. Images that wait for the same model are batched.

        The first request for a model starts its export for onnxruntime in the background.
        """
        image, name = await self._image(request), self.find(request.model).name
        found: PredictResponse = await self.workers[name].submit(
            self._predict[name], (image, request.include), batchable=True
        )
        if self._onnxruntime and name not in self._offers:
            self._offers[name] = asyncio.create_task(self.use_onnxruntime(name))
        return found

    async def reconstruct(self, request: ReconstructRequest) -> ReconstructResponse:
        """Reconstruct images from a pose."""
        found: ReconstructResponse = await self._run(request.model, answers.reconstruct_pose, request)
        return found

    async def routing(self, request: LabeledRequest) -> RoutingResponse:
        """Compute the vote maps of a class."""
        found: RoutingResponse = await self._run(
            request.model, answers.routing_maps, await self._image(request), request.label
        )
        return found

    async def attack(self, request: AttackRequest) -> AttackResponse:
        """Attack an image."""
        found: AttackResponse = await self._run(
            request.model, answers.attack_image, await self._image(request), request
        )
        return found

    async def samples(self, name: str | None) -> SampleImages:
        """Return test images of a model's dataset."""
        served = self.find(name)
        return await asyncio.get_running_loop().run_in_executor(self._sampling, lambda: served.samples)

    async def _image(self, request: ImageRequest) -> Tensor:
        shape = self.find(request.model).model.image_shape
        if not isinstance(request.image, str):
            return read_request_image(request, shape)
        async with self._decoding:  # decoding is slow enough to delay all other requests
            return await asyncio.wait_for(asyncio.to_thread(read_request_image, request, shape), DECODE_SECONDS)

    async def _run(self, name: str | None, work: Any, *arguments: Any) -> Any:
        served = self.find(name)
        return await self.workers[served.name].submit(lambda _: [work(served, *arguments)], None)
