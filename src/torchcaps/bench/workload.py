"""A network to measure: model, batch, and the form (implementation) in which it runs."""

from __future__ import annotations

import os
import shutil
import sysconfig
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.bench.straightforward import use_straightforward_layers
from torchcaps.errors import unknown_name
from torchcaps.kernels.dispatch import use_kernels
from torchcaps.models import Model, Output, create_model, models
from torchcaps.train import resolve
from torchcaps.train.objective import Objective


@dataclass(frozen=True)
class NetSpec:
    """A registered model and the batch it runs on.

    Args:
        model: registered name.
        size: ``paper`` or ``laptop``.
        batch: batch size.
        image_size: height and width; None: the paper's.
        channels: image channels; None: the paper's.
        classes: number of classes.
        options: model options.
        objective: run settings that change the training loss; the default is the model's recipe.
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
        """The model; its weights are the same each time."""
        torch.manual_seed(0)
        channels, side, _ = self.image_shape
        sizes: dict[str, Any] = {"image_size": side, "channels": channels, "classes": self.classes, "size": self.size}
        return create_model(self.model, **sizes, **self.options)

    def images_and_labels(self) -> tuple[Tensor, Tensor]:
        """Random images and labels, the same each time."""
        source = torch.Generator().manual_seed(0)
        images = torch.rand(self.batch, *self.image_shape, generator=source)
        return images, torch.randint(0, self.classes, (self.batch,), generator=source)


class ConvolutionFloor(nn.Module):
    """The convolutions and pooling layers of a model in the order of its forward pass: a lower bound of its time.

    They are PyTorch's, even if the model uses other convolutions, and channels-last like those of
    :func:`create_model`, which is the faster layout. ReLU is in between. Where a layer does not take the maps of the
    one before, as in a residual network, it gets maps of the right shape, filled with their mean.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        used = list[tuple[nn.Module, torch.Size]]()
        hooks = [
            module.register_forward_pre_hook(lambda module, given: used.append((module, given[0].shape[1:])))
            for module in model.modules()
            if isinstance(module, nn.Conv2d | nn.MaxPool2d)
        ]
        was_training = model.training
        with torch.no_grad(), use_kernels("plain"):
            model.eval()(torch.zeros(1, *model.image_shape))
        model.train(was_training)
        for hook in hooks:
            hook.remove()
        last = max(index for index, (layer, _) in enumerate(used) if isinstance(layer, nn.Conv2d))
        self.layers = nn.ModuleList(
            pytorch_convolution(layer) if isinstance(layer, nn.Conv2d) else layer for layer, _ in used[: last + 1]
        )
        self.shapes = [shape for _, shape in used[: last + 1]]

    def forward(self, images: Tensor) -> Tensor:
        maps = images
        for index, (layer, shape) in enumerate(zip(self.layers, self.shapes, strict=True)):
            if maps.shape[1:] != shape:
                mean = maps.mean((1, 2, 3), keepdim=True)  # (B, 1, 1, 1)
                maps = mean.expand(-1, *shape).contiguous(memory_format=torch.channels_last)
            maps = layer(maps)
            if isinstance(layer, nn.Conv2d) and index < len(self.layers) - 1:
                maps = maps.relu()
        return maps


def pytorch_convolution(layer: nn.Conv2d) -> nn.Conv2d:
    """A copy of the layer as a plain ``nn.Conv2d``."""
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


def use_pytorch_convolutions(model: Model) -> None:
    """Replace all convolutions of a model by plain ``nn.Conv2d``."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Conv2d) and type(child) is not nn.Conv2d:
                setattr(module, name, pytorch_convolution(child))


# Each form with its description.
FORMS = {
    "torchcaps": "the library's default, with all fast kernels",
    "pytorch convolutions": "fast routing, PyTorch's convolutions",
    "bfloat16": "the library's default in bfloat16 mixed precision",
    "plain": "plain PyTorch",
    "compiled": "torch.compile of plain PyTorch",
    "straightforward": "as most public implementations are written",
    "convolutions": "the network's convolutions in PyTorch alone",
}
FAST = ("torchcaps", "pytorch convolutions", "bfloat16")


class Workload:
    """A network in one form, with images, loss and optimizer, on a device.

    >>> workload = Workload(NetSpec("lenet", batch=2), "plain")
    >>> workload.train_step()
    >>> workload.infer()
    """

    def __init__(self, net: NetSpec, form: str, device: str = "cpu") -> None:
        if form not in FORMS:
            raise unknown_name("form", form, FORMS)
        self.net, self.form = net, form
        self.images, self.labels = (each.to(device) for each in net.images_and_labels())
        self.model = net.create().to(device)
        if form == "pytorch convolutions":
            use_pytorch_convolutions(self.model)
        elif form == "straightforward":
            use_straightforward_layers(self.model)
        self.floor = ConvolutionFloor(self.model) if form == "convolutions" else None
        self.network: Any = self.model if self.floor is None else self.floor
        self.objective: Any = Objective(self.model, resolve(model=net.model, size=net.size, **net.objective)).to(device)
        if form == "compiled":
            # Compilation happens at the first call, so that what is not measured costs nothing.
            self.objective, self.network = torch.compile(self.objective), torch.compile(self.network)
        learned = self.objective if self.floor is None else self.floor
        self.optimizer = torch.optim.Adam(learned.parameters(), fused=True)

    def train_step(self) -> None:
        """Forward, backward, Adam, and the model's own update after a step."""
        self.optimizer.zero_grad()
        loss, output = self.forward()
        self.backward(loss)
        self.optimizer.step()
        if output is not None:
            with torch.no_grad():
                self.model.after_step(output, self.labels)

    def forward(self) -> tuple[Tensor, Output | None]:
        """The loss and the model's output, which is None for the convolutions alone."""
        self.network.train()
        with self.kernels():
            if self.floor is not None:
                return self.floor(self.images).square().mean(), None
            with torch.autocast(self.images.device.type, torch.bfloat16, enabled=self.form == "bfloat16"):
                loss, output = self.objective(self.images, self.labels, None, 0.0)
            return loss, output

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients."""
        with self.kernels():
            loss.backward()

    @torch.no_grad()
    def infer(self) -> None:
        """Forward pass without gradients or decoder."""
        self.network.eval()
        with self.kernels():
            self.network(self.images)

    @torch.no_grad()
    def scores(self) -> Tensor:
        """The class scores of the images."""
        self.model.eval()
        with self.kernels():
            found: Tensor = self.model(self.images).scores
        return found

    def kernels(self) -> AbstractContextManager[None]:
        """Select the kernels of this form."""
        return use_kernels("auto" if self.form in FAST else "plain")


def forms_for(net: NetSpec, *, compiled: bool) -> list[str]:
    """The forms that apply to a network: one without capsules has no straightforward form."""
    wanted = ["torchcaps", "plain", *(["compiled"] if compiled else [])]
    return [*wanted, *(["straightforward"] if models.get(net.model).capsules else []), "convolutions"]


def cxx_compiler() -> str | None:
    """The C++ compiler that torch.compile would call, or None."""
    return next(filter(None, map(shutil.which, (os.environ.get("CXX") or "g++", "clang++"))), None)


def why_not_compiled() -> str | None:
    """Why torch.compile cannot run here, or None if it can."""
    if cxx_compiler() is None:
        return "no C++ compiler was found: install g++ or clang++"
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return "Python's header files were not found: install python3-dev"
    return None
