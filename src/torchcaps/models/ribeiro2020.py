"""Capsule networks with variational Bayes routing.

Ribeiro, Leontidis, Kollias: Capsule Routing via Variational Bayes, 2020, https://arxiv.org/abs/1905.11455.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn

from torchcaps.errors import TorchcapsError
from torchcaps.functional import squash
from torchcaps.layers import (
    CapsuleLayer,
    ConvTransform,
    CoordinateAddition,
    NormalizedPrimaryCapsules,
    PositionSharedTransform,
    Sequential,
    Standardize,
    Transform,
    TypeBatchNorm,
    build_stack,
)
from torchcaps.models.base import conv_output_size
from torchcaps.models.capsule_model import CapsuleModel, length_score
from torchcaps.models.registry import ModelRecord, Recipe, models
from torchcaps.routing import create_routing


class VBCapsNet(CapsuleModel):
    """Matrix capsules with batch normalization of poses and activations in every layer.

    Parameters for the two channels and five classes of smallNORB at 32 pixels: 68,640, and 206,144 with one capsule
    layer and 16 types. The authors' release has two more for each parent type, which have no effect.

    Args:
        filters: output channels of the first convolution.
        types: capsule types of the primary and of two convolutional capsule layers; one number for a network whose
            class capsules follow the primary capsules.
        coordinates: add the coordinates of a child to its votes for the classes; with three numbers of types only.
        routing, routing_options: as in CapsNet.
        routing_order: ``sequential``, one layer after the other, or ``concurrent``, all layers iterate together.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        filters: int = 64,
        types: tuple[int, ...] = (8, 16, 16),
        coordinates: bool = True,
        routing: str = "variational-bayes",
        routing_options: dict[str, Any] | None = None,
        routing_order: str = "sequential",
    ) -> None:
        if len(types) not in (1, 3) or min(filters, *types) < 1:
            raise TorchcapsError(
                f"vb-capsnet needs one or three numbers of types and filters of at least 1, got {types}"
            )
        deep = len(types) == 3
        kernel, stride = (1, 1) if deep else (3, 2)
        grid = [conv_output_size(side, (5, 2), (kernel, stride)) for side in image_shape[1:]]
        if deep:
            for side in image_shape[1:]:
                conv_output_size(side, (5, 2), (3, 2), (3, 1))
        elif grid[0] != grid[1]:
            raise TorchcapsError(f"vb-capsnet with one capsule layer needs square images, got {image_shape[1:]}")
        transforms = _build_transforms((grid[0], grid[1]), types, classes, coordinates)
        layers, activations = [], True
        for transform in transforms:
            shape = replace(transform.shape, activations=activations)
            routed = create_routing(routing, shape, **(routing_options or {}))
            activations = routed.gives_activation
            normalize = TypeBatchNorm(shape.parents) if activations else squash
            layers.append(CapsuleLayer(transform, routed, normalize))
        super().__init__(
            image_shape,
            classes,
            features=Sequential(
                nn.Conv2d(image_shape[0], filters, 5, stride=2, bias=False), nn.BatchNorm2d(filters), nn.ReLU()
            ),
            primary=NormalizedPrimaryCapsules(filters, types[0], 16, kernel=kernel, stride=stride, per_type=True),
            capsules=build_stack(routing_order, *layers),
            score=length_score,
            preprocess=Standardize(),
        )


def _build_transforms(
    grid: tuple[int, int], types: tuple[int, ...], classes: int, coordinates: bool
) -> list[Transform]:
    """Build the transforms, with the initialization of the authors' release."""

    def spread(below: int, above: int, kernel: int) -> float:
        return float((2 / (16 * kernel * kernel * (below + above))) ** 0.5)

    if len(types) == 1:
        return [ConvTransform(grid, types[0], classes, kernel=grid[0], spread=spread(types[0], classes, grid[0]))]
    first = ConvTransform(grid, types[0], types[1], kernel=3, stride=2, spread=spread(types[0], types[1], 3))
    second = ConvTransform(first.grid, types[1], types[2], kernel=3, spread=spread(types[1], types[2], 3))
    last = PositionSharedTransform(second.grid, types[2], classes, spread=spread(types[2], classes, 1))
    return [first, second, CoordinateAddition(last) if coordinates else last]


_RECIPE = Recipe(loss="cross-entropy", batch_size=128)
models.add(
    ModelRecord(
        name="vb-capsnet",
        description="matrix capsules with batch normalization, variational Bayes routing",
        paper="ribeiro2020",
        build=VBCapsNet,
        recipe=_RECIPE,
        laptop={"filters": 32, "types": (4, 8, 8)},
        image=(2, 32, 32),
    )
)
models.add(
    ModelRecord(
        name="vb-capsnet-tiny",
        description="vb-capsnet with one capsule layer",
        paper="ribeiro2020",
        build=partial(VBCapsNet, types=(16,)),
        recipe=_RECIPE,
        laptop={"filters": 32, "types": (8,)},
        image=(2, 32, 32),
    )
)
