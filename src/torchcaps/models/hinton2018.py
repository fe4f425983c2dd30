"""Matrix capsules with EM routing, and the paper's CNN baseline.

Hinton, Sabour, Frosst: Matrix Capsules with EM Routing, 2018, https://openreview.net/forum?id=HJWLfGWRb.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor, nn

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.functional import squash
from torchcaps.layers import (
    CapsuleLayer,
    Conv2d,
    ConvTransform,
    CoordinateAddition,
    MatrixPrimaryCapsules,
    PositionSharedTransform,
    Standardize,
    Transform,
    build_stack,
)
from torchcaps.layers.nonlinearity import identity, rms_normalize
from torchcaps.models.base import Model, Output, conv_output_size
from torchcaps.models.capsule_model import CapsuleModel, length_score
from torchcaps.models.registry import ModelRecord, Recipe, models
from torchcaps.routing import create_routing

POSES = {"matrix": (4, 4), "vector": (1, 16)}
PREPROCESS = {"standardize": Standardize, "none": nn.Identity}
NORMALIZATIONS = {"rms": rms_normalize, "none": identity}


class MatrixCapsNet(CapsuleModel):
    """Matrix capsules: a convolution, primary capsules, two convolutional capsule layers and class capsules.

    Parameters for grayscale images and 5 classes, without the betas of EM routing: 316,256 with ``filters`` 32 and
    ``types`` (32, 32, 32), and 67,080 with 64 and (8, 16, 16).

    Transformation matrices start near the identity, at I + 0.1 N(0, 1). The votes of random matrices cancel in a
    parent's mean, so that poses shrink from layer to layer and the class layer receives hardly any; near the identity
    they are passed on. The authors' release has random matrices with a standard deviation of 0.3, and 0.01 in the class
    layer. :mod:`torchcaps.routing.em` lists how the defaults of EM routing differ.

    Args:
        image_shape: channels, height, width.
        classes: number of classes.
        filters: A, output channels of the first convolution.
        types: B, C, D: capsule types of the primary and the two convolutional capsule layers.
        pose: ``matrix``, 4x4 with 16 weights per pair of capsules, or ``vector``, 16-D with 256 weights.
        coordinates: add the coordinates of a child to its votes for the classes.
        routing: name of the routing of all layers. Routings that give no activation are followed by squash, and the
            score of a class is then the length of its capsule.
        routing_options: settings of the routing, such as ``{"iterations": 2}``.
        preprocess: ``standardize`` each image, or ``none``.
        routing_order: ``sequential``, one layer after the other, or ``concurrent``, all layers iterate together, see
            :class:`torchcaps.layers.ConcurrentStack`.
        normalization: ``rms`` divides the poses of both convolutional capsule layers by their root mean square over the
            layer, image by image, without parameters; ``none`` keeps them, as in the paper.
        start: initial transformation matrices: near the ``identity``, or ``random`` with a standard deviation of 1/2.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        filters: int = 32,
        types: tuple[int, int, int] = (32, 32, 32),
        pose: str = "matrix",
        coordinates: bool = True,
        routing: str = "em",
        routing_options: dict[str, Any] | None = None,
        preprocess: str = "standardize",
        routing_order: str = "sequential",
        normalization: str = "none",
        start: str = "identity",
    ) -> None:
        if pose not in POSES:
            raise unknown_name("pose", pose, POSES)
        if preprocess not in PREPROCESS:
            raise unknown_name("preprocess", preprocess, PREPROCESS)
        if normalization not in NORMALIZATIONS:
            raise unknown_name("normalization", normalization, NORMALIZATIONS)
        if min(filters, *types) < 1:
            raise TorchcapsError(f"matrix capsules need at least 1 filter and type, got {filters} and {types}")
        for side in image_shape[1:]:
            conv_output_size(side, (5, 2), (3, 2), (3, 1))
        height, width = (conv_output_size(side, (5, 2)) for side in image_shape[1:])
        poses: dict[str, Any] = {"child_pose": POSES[pose], "parent_pose": POSES[pose], "start": start}
        first = ConvTransform((height, width), types[0], types[1], kernel=3, stride=2, **poses)
        second = ConvTransform(first.grid, types[1], types[2], kernel=3, **poses)
        last: Transform = PositionSharedTransform(second.grid, types[2], classes, **poses)
        if coordinates:
            last = CoordinateAddition(last)
        layers, activations = [], True  # the primary capsules have activations
        for transform in (first, second, last):
            shape = replace(transform.shape, activations=activations)
            routed = create_routing(routing, shape, **(routing_options or {}))
            activations = routed.gives_activation
            normalize = identity if transform is last else NORMALIZATIONS[normalization]
            layers.append(CapsuleLayer(transform, routed, normalize if activations else squash))
        super().__init__(
            image_shape,
            classes,
            features=nn.Sequential(Conv2d(image_shape[0], filters, 5, stride=2), nn.ReLU()),
            primary=MatrixPrimaryCapsules(filters, types[0]),
            capsules=build_stack(routing_order, *layers),
            score=length_score,
            preprocess=PREPROCESS[preprocess](),
        )


class ConvNetHinton2018(Model):
    """CNN baseline with two convolutions and a hidden layer: 4,252,549 parameters at 32x32 with 5 classes.

    Args:
        filters: output channels of the two convolutions.
        hidden: units of the hidden layer.
        preprocess: ``standardize`` each image, or ``none``.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        filters: tuple[int, int] = (32, 64),
        hidden: int = 1024,
        preprocess: str = "standardize",
    ) -> None:
        if preprocess not in PREPROCESS:
            raise unknown_name("preprocess", preprocess, PREPROCESS)
        grid = [conv_output_size(side, (2, 2), (2, 2)) for side in image_shape[1:]]
        super().__init__(image_shape, classes, preprocess=PREPROCESS[preprocess]())
        self.layers = nn.Sequential(
            Conv2d(image_shape[0], filters[0], 5, padding="same"),
            nn.ReLU(),
            nn.MaxPool2d(2),
            Conv2d(filters[0], filters[1], 5, padding="same"),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(filters[1] * grid[0] * grid[1], hidden),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(hidden, classes),
        )

    def classify(self, images: Tensor) -> Output:
        logits = self.layers(images)
        return Output(logits.softmax(1), logits)


MATRIX_RECIPE = Recipe(
    loss="spread",
    learning_rate=3e-3,
    schedule="exponential:0.96:20000",
    batch_size=64,
    laptop_schedule="exponential:0.5:1500",
)
models.add(
    ModelRecord(
        name="matrix-capsnet",
        description="4x4 pose matrices, two convolutional capsule layers, EM routing",
        paper="hinton2018",
        build=MatrixCapsNet,
        recipe=MATRIX_RECIPE,
        laptop={"types": (8, 8, 8)},
    )
)
models.add(
    ModelRecord(
        name="matrix-capsnet-68k",
        description="matrix-capsnet with 64 filters and 8, 16 and 16 types: the paper's small network",
        paper="hinton2018",
        build=partial(MatrixCapsNet, filters=64, types=(8, 16, 16)),
        recipe=MATRIX_RECIPE,
        laptop={"filters": 32, "types": (4, 8, 8)},
    )
)
models.add(
    ModelRecord(
        name="cnn-hinton2018",
        description="two convolutions with pooling, hidden layer with dropout",
        paper="hinton2018",
        build=ConvNetHinton2018,
        recipe=Recipe(loss="cross-entropy", batch_size=64),
        laptop={"filters": (16, 32), "hidden": 256},
        capsules=False,
    )
)
