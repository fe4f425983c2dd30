"""The models of a service with a worker each: what a request asks is brought to the right one."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torchcaps.demo import answers
from torchcaps.demo.picture import read_question
from torchcaps.demo.schemas import (
    Attacked,
    AttackQuestion,
    Drawing,
    DrawQuestion,
    LabelledQuestion,
    Prediction,
    Question,
    Routing,
    SampleImages,
)
from torchcaps.demo.served import Served
from torchcaps.demo.worker import Worker
from torchcaps.errors import TorchcapsError, unknown_name

DECODERS = 2  # pictures that are decoded at the same time
DECODE_SECONDS = 10.0
FAREWELL = 1.0  # seconds that workers have to end


class UnknownModelError(TorchcapsError):
    """A request names a model that is not served."""


class Service:
    """Answers questions about models. Only methods that wait may be called from the event loop."""

    def __init__(self, served: list[Served]) -> None:
        if not served:
            raise TorchcapsError("there is no model to serve: name the folder of a trained run")
        self.served = {each.name: each for each in served}
        self.infos = [each.info for each in served]
        self.workers = {name: Worker(name) for name in self.served}
        # The same function object for all requests: that is how a worker knows which of them can go together.
        self._predict = {name: partial(answers.predict, each) for name, each in self.served.items()}
        self._decoding = asyncio.Semaphore(DECODERS)
        # A dataset may have to be fetched first: for that long, pictures shall find a thread to be decoded in.
        self._sampling = ThreadPoolExecutor(1, thread_name_prefix="samples")

    def find(self, name: str) -> Served:
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

    async def predict(self, question: Question) -> Prediction:
        """The answer to an image; images that wait for the same model go through it together."""
        image = await self._image(question)
        found: Prediction = await self.workers[question.model].ask(self._predict[question.model], image, together=True)
        return found

    async def draw(self, question: DrawQuestion) -> Drawing:
        """What the decoder draws of a pose."""
        found: Drawing = await self._alone(question.model, answers.draw, question)
        return found

    async def follow(self, question: LabelledQuestion) -> Routing:
        """Where the votes came from."""
        found: Routing = await self._alone(question.model, answers.follow, await self._image(question), question.label)
        return found

    async def attack(self, question: AttackQuestion) -> Attacked:
        """The image under attack."""
        found: Attacked = await self._alone(question.model, answers.attack, await self._image(question), question)
        return found

    async def samples(self, name: str) -> SampleImages:
        """Test images of a model's dataset."""
        served = self.find(name)
        return await asyncio.get_running_loop().run_in_executor(self._sampling, lambda: served.samples)

    async def _image(self, question: Question) -> Tensor:
        shape = self.find(question.model).model.image_shape
        if not isinstance(question.image, str):
            return read_question(question, shape)
        async with self._decoding:  # a picture takes long enough to hold up everybody else
            return await asyncio.wait_for(asyncio.to_thread(read_question, question, shape), DECODE_SECONDS)

    async def _alone(self, name: str, work: Any, *arguments: Any) -> Any:
        served = self.find(name)
        return await self.workers[name].ask(lambda _: [work(served, *arguments)], None)
