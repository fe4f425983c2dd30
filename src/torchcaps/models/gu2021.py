"""Ablations of CapsNet, and convolutional networks with some of its components.

Gu, Tresp, Hu: Capsule Network is Not More Robust than Convolutional Network, 2021, https://arxiv.org/abs/2103.15459.

Four of the five components are settings of ``capsnet``: ``transform``, ``routing``, ``nonlinearity`` and ``decoder``;
the fifth is the loss. For table 3, set ``kernel`` of capsnet, convnet-avg and convnet-fc.

In laptop size all networks have a quarter of the channels. That divides a convolution's parameters by 16, but those of
a layer on all positions by 4, so ConvNet-Avg keeps only 0.12 of CapsNet's parameters instead of 0.40. The spec widens
it where it is compared, so that the parameters of a table's rows keep their ratios.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from torchcaps.errors import unknown_name
from torchcaps.functional import squash
from torchcaps.layers import Conv2d
from torchcaps.models.base import Model, Output, conv_output_size
from torchcaps.models.baselines import ConvNetFC
from torchcaps.models.capsule_model import build_decoder, length_score
from torchcaps.models.registry import ModelRecord, Recipe, create_model, models
from torchcaps.models.sabour2017 import CapsNet


class ConvNetFCLargeKernel(ConvNetFC):
    """ConvNet-FC with 9x9 kernels and about as many parameters as CapsNet.

    The paper does not give the layer sizes. The number of units in the first hidden layer is chosen to match the
    parameters of the CapsNet for the same images: 102, 181 and 167 units, that is 8,214,704, 11,357,247 and 13,490,609
    parameters, at 28, 36 and 40 pixels.

    Args:
        filters: output channels of the first two convolutions; the third has half as many.
        second_hidden: units of the second hidden layer.
        like: ``paper`` or ``laptop``, the CapsNet to match.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        filters: int = 256,
        second_hidden: int = 192,
        like: str = "paper",
    ) -> None:
        with torch.device("meta"):  # shapes only: nothing is allocated
            capsnet = create_model(
                "capsnet",
                image_size=image_shape[1:],
                channels=image_shape[0],
                classes=classes,
                size=like,
                backbone="none",
            )
            counts = [
                _count(ConvNetFC(image_shape, classes, filters=filters, kernel=9, hidden=(units, second_hidden)))
                for units in (1, 2)
            ]
        per_unit = counts[1] - counts[0]
        units = max(1, round((_count(capsnet) - counts[0]) / per_unit) + 1)
        super().__init__(image_shape, classes, filters=filters, kernel=9, hidden=(units, second_hidden))


class GroupedUnits(Model):
    """Base class: two convolutions and a linear layer with a group of 16 units per class in place of class capsules.

    The linear layer has no bias, so that the network has exactly as many parameters as CapsNet.

    The paper says that all linear layers are followed by a ReLU. Here the 160 units have none by default: with it, the
    logits of ConvNet-CR, sums of a group, cannot be negative, and three of three trainings ended with dead units and
    30 to 69 % on MNIST instead of 99.3 %. ConvNet-R learns as well with as without it (results/gu2021-units.json).

    Args:
        filters: output channels of both convolutions.
        group: units per class.
        kernel: kernel size of both convolutions.
        activation: of the units, ``none`` or ``relu``.
        decoder, hidden: as in CapsNet.
    """

    default_decoder = "conditional"

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        filters: int = 256,
        group: int = 16,
        kernel: int = 9,
        activation: str = "none",
        decoder: str | None = None,
        hidden: tuple[int, int] = (512, 1024),
    ) -> None:
        if activation not in ("none", "relu"):
            raise unknown_name("activation", activation, ("none", "relu"))
        height, width = (conv_output_size(side, (kernel, 1), (kernel, 2)) for side in image_shape[1:])
        drawing = build_decoder(decoder or self.default_decoder, classes, group, image_shape, hidden)
        super().__init__(image_shape, classes, decoder=drawing)
        self.group, self.activation = group, activation
        self.first = Conv2d(image_shape[0], filters, kernel)
        self.second = Conv2d(filters, filters, kernel, stride=2)
        self.units = nn.Linear(filters * height * width, classes * group, bias=False)
        self.add_layers()

    def add_layers(self) -> None:
        """Add the layers of a subclass."""

    def grouped(self, features: Tensor) -> Tensor:
        """Compute the units, grouped by class: (B, classes, group)."""
        units: Tensor = self.units(features.flatten(1)).view(-1, self.classes, self.group)
        return units.relu() if self.activation == "relu" else units


class ConvNetCR(GroupedUnits):
    """ConvNet with conditional reconstruction: the logit of a class is the sum of its group."""

    def classify(self, images: Tensor) -> Output:
        groups = self.grouped(self.second(self.first(images).relu()).relu())
        logits = groups.sum(2)
        return Output(logits.sigmoid(), logits, groups)


class ConvNetR(GroupedUnits):
    """ConvNet with unconditional reconstruction from all units, and a linear classifier on them."""

    default_decoder = "normal"

    def add_layers(self) -> None:
        self.head = nn.Linear(self.classes * self.group, self.classes)

    def classify(self, images: Tensor) -> Output:
        groups = self.grouped(self.second(self.first(images).relu()).relu())
        logits = self.head(groups.flatten(1))
        return Output(logits.softmax(1), logits, groups)


class ConvNetCRSF(GroupedUnits):
    """ConvNet-CR with squash on vectors of 8 channels and on the groups: CapsNet without routing, as a CNN."""

    vector = 8

    def classify(self, images: Tensor) -> Output:
        maps = self.second(self.first(images).relu())  # (B, C, H, W)
        vectors = squash(maps.unflatten(1, (-1, self.vector)), dim=2)
        pose = squash(self.grouped(vectors))
        return Output(*length_score(pose), pose)


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


_LAPTOP_CAPSNET = models.get("capsnet").laptop
_LAPTOP_UNITS = {"filters": 64, "hidden": (256, 512)}
_DRAWING = 0.0005

for name, description, settings in (
    ("capsnet-nor", "CapsNet without routing: the average of the votes", {"routing": "uniform"}),
    ("aff-capsnet", "one matrix per class for all children, no routing", {"transform": "shared", "routing": "uniform"}),
    ("aff-capsnet-dr", "one matrix per class for all children, dynamic routing", {"transform": "shared"}),
):
    models.add(
        ModelRecord(
            name=name,
            description=description,
            paper="gu2021",
            build=partial(CapsNet, **settings),  # type: ignore[arg-type]
            recipe=Recipe(loss="margin", reconstruction_weight=_DRAWING),
            laptop=_LAPTOP_CAPSNET,
        )
    )
models.add(
    ModelRecord(
        name="convnet-fc-lk",
        description="ConvNet-FC with large kernels, as large as CapsNet",
        paper="gu2021",
        build=ConvNetFCLargeKernel,
        recipe=Recipe(loss="cross-entropy"),
        laptop={"filters": 64, "second_hidden": 96, "like": "laptop"},
        earlier_laptop=({"filters": 32, "second_hidden": 96, "like": "laptop"},),
        capsules=False,
    )
)
for name, description, build, loss in (
    ("convnet-r", "160 units, a classifier on them, a decoder without a mask", ConvNetR, "cross-entropy"),
    ("convnet-cr", "160 units in groups whose sums are logits, conditional decoder", ConvNetCR, "bce"),
    ("convnet-cr-sf", "convnet-cr with squashed vectors and groups", ConvNetCRSF, "margin"),
):
    models.add(
        ModelRecord(
            name=name,
            description=description,
            paper="gu2021",
            build=build,
            recipe=Recipe(loss=loss, reconstruction_weight=_DRAWING),
            laptop=_LAPTOP_UNITS,
            capsules=False,
        )
    )
