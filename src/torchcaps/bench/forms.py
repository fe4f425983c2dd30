"""The forms in which a network is measured, each ready to train a step or to answer."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchcaps.bench.floor import ConvolutionFloor, use_own_convolutions
from torchcaps.bench.nets import Net
from torchcaps.bench.straightforward import write_out
from torchcaps.errors import unknown_name
from torchcaps.kernels.choice import use_kernels
from torchcaps.models import Output, models
from torchcaps.train import resolve
from torchcaps.train.objective import Objective

# Each form, and what it is for a reader of a table.
FORMS = {
    "torchcaps": "as it comes, with all fast forms",
    "own convolutions": "fast routing, PyTorch's convolutions",
    "plain": "the plain definition in PyTorch",
    "compiled": "torch.compile of the plain definition",
    "straightforward": "as public code writes it",
    "convolutions": "the network's convolutions in PyTorch, and nothing else",
}
FAST = ("torchcaps", "own convolutions")


class Subject:
    """A network in one form, with its images, its loss and its optimiser.

    >>> subject = Subject(Net("lenet", batch=2), "plain")
    >>> subject.train_step()
    >>> subject.infer()
    """

    def __init__(self, net: Net, form: str) -> None:
        if form not in FORMS:
            raise unknown_name("form", form, FORMS)
        self.net, self.form = net, form
        self.images, self.labels = net.images_and_labels()
        self.model = net.create()
        if form == "own convolutions":
            use_own_convolutions(self.model)
        elif form == "straightforward":
            write_out(self.model)
        self.floor = ConvolutionFloor(self.model) if form == "convolutions" else None
        self.network: Any = self.model if self.floor is None else self.floor
        self.objective: Any = Objective(self.model, resolve(model=net.model, size=net.size, **net.objective))
        if form == "compiled":
            # Both are compiled when they are first called, so that what is not measured costs nothing.
            self.objective, self.network = torch.compile(self.objective), torch.compile(self.network)
        learned = self.objective if self.floor is None else self.floor
        self.optimizer = torch.optim.Adam(learned.parameters(), fused=True)

    def train_step(self) -> None:
        """Forward, backward, Adam, and what a routing learns by itself."""
        self.optimizer.zero_grad()
        loss, output = self.forward()
        self.backward(loss)
        self.optimizer.step()
        if output is not None:
            with torch.no_grad():
                self.model.after_step(output, self.labels)

    def forward(self) -> tuple[Tensor, Output | None]:
        """The loss of the batch, and the model's answer; the convolutions alone have none."""
        self.network.train()
        with self.kernels():
            if self.floor is not None:
                return self.floor(self.images).square().mean(), None
            loss, output = self.objective(self.images, self.labels, None, 0.0)
            return loss, output

    def backward(self, loss: Tensor) -> None:
        """Gradients of everything that is learned."""
        with self.kernels():
            loss.backward()

    @torch.no_grad()
    def infer(self) -> None:
        """The answer alone: no gradient, no decoder."""
        self.network.eval()
        with self.kernels():
            self.network(self.images)

    def kernels(self) -> AbstractContextManager[None]:
        """The choice of kernels that makes the form what it is."""
        return use_kernels("auto" if self.form in FAST else "plain")


def forms_for(net: Net, *, compiled: bool) -> list[str]:
    """The forms that say something about a network: without capsules there is no routing to write otherwise."""
    wanted = ["torchcaps", "plain", *(["compiled"] if compiled else [])]
    return [*wanted, *(["straightforward"] if models.get(net.model).capsules else []), "convolutions"]


def subjects(net: Net, forms: Iterable[str]) -> dict[str, Subject]:
    """A network in several forms, each with weights of its own."""
    return {form: Subject(net, form) for form in forms}


def cxx_compiler() -> str | None:
    """The C++ compiler that torch.compile would call, or None."""
    return next(filter(None, map(shutil.which, (os.environ.get("CXX") or "g++", "clang++"))), None)


def why_not_compiled() -> str | None:
    """Why torch.compile cannot run here, in a few words, or None if it can."""
    if cxx_compiler() is None:
        return "no C++ compiler was found: install g++ or clang++"
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return "Python's header files were not found: install python3-dev"
    return None
