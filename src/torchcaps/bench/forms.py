"""A network to be measured: which one, how large, on how many images."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.bench.straightforward import write_out
from torchcaps.bench.timing import threads
from torchcaps.errors import unknown_name
from torchcaps.kernels.autotune import Case, measure
from torchcaps.kernels.dispatch import use_kernels
from torchcaps.models import Model, Output, create_model, models
from torchcaps.progress import progress_bar
from torchcaps.train import resolve
from torchcaps.train.objective import Objective


# MERGED PyTorch's own convolutions: what a network would cost if it were nothing else.
# MERGED The forms in which a network is measured, each ready to train a step or to answer.
# MERGED Where convolution through Fourier transforms wins, and where it does not.
@dataclass(frozen=True)
class Net:
    """A model of the registry with a batch to run it on.

    Args:
        model: its name.
        size: ``paper`` or ``laptop``.
        batch: images at a time.
        image_size: height and width; None: those of the paper's images.
        channels: of the images; None: as many as the paper's have.
        classes: number of classes.
        options: settings of the model.
        objective: settings of a run that decide what is minimised, where they are not those of the model's recipe.
    """

    model: str
    size: str = "paper"
    batch: int = 8
    image_size: int | None = None
    classes: int = 10
    options: dict[str, Any] = field(default_factory=dict)
    channels: int | None = None
    objective: dict[str, Any] = field(default_factory=dict)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        channels, side, _ = models.get(self.model).image
        side = side if self.image_size is None else self.image_size
        return self.channels or channels, side, side

    def create(self) -> Model:
        """The model, with the same weights each time."""
        torch.manual_seed(0)
        channels, side, _ = self.image_shape
        sizes: dict[str, Any] = {"image_size": side, "channels": channels, "classes": self.classes, "size": self.size}
        return create_model(self.model, **sizes, **self.options)

    def images_and_labels(self) -> tuple[Tensor, Tensor]:
        """Random pixels and classes, the same each time."""
        source = torch.Generator().manual_seed(0)
        images = torch.rand(self.batch, *self.image_shape, generator=source)
        return images, torch.randint(0, self.classes, (self.batch,), generator=source)


class ConvolutionFloor(nn.Module):
    """The convolutions of a model in their order with ReLU between, and pooling where the model has it.

    They are PyTorch's, whatever the model itself computes its convolutions with, and their weights lie in memory as
    :func:`create_model` lays them, channels side by side, which is PyTorch's faster way.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                layers += [own_convolution(module), nn.ReLU()]
            elif isinstance(module, nn.MaxPool2d):
                layers.append(module)
        last = max(index for index, layer in enumerate(layers) if isinstance(layer, nn.Conv2d))
        self.layers = nn.Sequential(*layers[: last + 1])

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.layers(images)
        return maps


def own_convolution(layer: nn.Conv2d) -> nn.Conv2d:
    """PyTorch's convolution with the settings of this one and its weights, copied."""
    own = nn.Conv2d(
        layer.in_channels,
        layer.out_channels,
        layer.kernel_size,  # type: ignore[arg-type]
        layer.stride,  # type: ignore[arg-type]
        layer.padding,  # type: ignore[arg-type]
        layer.dilation,  # type: ignore[arg-type]
        layer.groups,
        layer.bias is not None,
    )
    own.load_state_dict(layer.state_dict())
    return own.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def use_own_convolutions(model: Model) -> None:
    """Put PyTorch's convolutions into a model, whatever it had for them."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Conv2d) and type(child) is not nn.Conv2d:
                setattr(module, name, own_convolution(child))


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


# The layers that models of this library have: name, channels in and out, side of the map, kernel, stride.
LAYERS = {
    "CapsNet's second, paper": (256, 256, 20, 9, 2),
    "CapsNet's second, laptop": (64, 64, 20, 9, 2),
    "CapsNet's second at 40 pixels": (256, 256, 32, 9, 2),
    "G-CapsNet's second of 7x7": (64, 128, 26, 7, 2),
    "LeNet's second": (20, 50, 12, 5, 1),
    "5x5 of many channels": (128, 128, 14, 5, 1),
    "3x3 of many channels": (128, 128, 14, 3, 1),
}
BATCHES = (8, 32, 128)
MODES = ("training", "attack", "inference")


def time_convolutions() -> list[dict[str, Any]]:
    """Seconds of both forms for each layer, batch and mode, on one thread."""
    rows: list[dict[str, Any]] = []
    with threads(1), progress_bar("convolutions", len(LAYERS) * len(BATCHES) * len(MODES)) as advance:
        for name, (inputs, outputs, size, kernel, stride) in LAYERS.items():
            for batch in BATCHES:
                for mode in MODES:
                    case = Case(batch, inputs, outputs, size, kernel, stride, mode, 1)
                    seconds = measure(case)
                    ratio = seconds["spectral"] / seconds["pytorch"]
                    rows.append({"layer": name, **asdict(case), "seconds": seconds, "ratio": ratio})
                    advance(1)
    return rows
