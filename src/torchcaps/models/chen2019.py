"""G-CapsNets: capsule networks whose coupling coefficients are trained by backpropagation.

Chen, Wang, Zhao, Crandall: Generalized Capsule Networks with Trainable Routing Procedure, 2019,
https://arxiv.org/abs/1808.08692.

Fully connected, convolutional and multi-layer G-CapsNets for MNIST and CIFAR-10, the paper's CNN baseline for CIFAR-10,
and the LeNet that is the source of its black-box attack. The paper divides pixels by 256, torchcaps by 255.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.layers import (
    CapsuleLayer,
    CapsuleStack,
    Conv2d,
    ConvTransform,
    DenseTransform,
    MeanImage,
    PrimaryCapsules,
)
from torchcaps.layers.nonlinearity import NonlinearityRecord, nonlinearities
from torchcaps.layers.transform import Transform
from torchcaps.models.base import Model, Output, conv_output_size
from torchcaps.models.capsule_model import CapsuleModel, build_decoder, length_score
from torchcaps.models.registry import ModelRecord, Recipe, models
from torchcaps.models.sabour2017 import CapsNet
from torchcaps.routing import create_routing

ImageShape = tuple[int, int, int]


def g_capsnet_fc(
    image_shape: ImageShape,
    classes: int,
    *,
    filters: int = 256,
    types: int = 32,
    class_size: int = 16,
    routing: str = "trainable",
    routing_options: dict[str, Any] | None = None,
    nonlinearity: str = "exponential",
    decoder: str = "conditional",
    hidden: tuple[int, int] = (512, 1024),
    subtract_mean: bool = False,
) -> CapsuleModel:
    """Build the fully connected G-CapsNet: CapsNet with trained couplings and the exponential squash.

    Parameters: 6,815,744 on MNIST, 8,227,088 with the decoder; 2,674,176 in the CIFAR-10 variant. The released
    configuration has ``nonlinearity="relu-exponential"``.

    Args:
        image_shape, classes, filters, types, class_size, routing, routing_options, nonlinearity: as in CapsNet.
        decoder, hidden: as in CapsNet.
        subtract_mean: subtract the mean training image from the input.
    """
    model = CapsNet(
        image_shape,
        classes,
        filters=filters,
        types=types,
        class_size=class_size,
        routing=routing,
        routing_options=routing_options,
        nonlinearity=nonlinearity,
        decoder=decoder,
        hidden=hidden,
    )
    if subtract_mean:
        model.preprocess = MeanImage(image_shape)
    return model


class GCapsNetConv(CapsuleModel):
    """The convolutional G-CapsNet: matrix poses, and one kernel that covers the grid of primary capsules.

    Parameters: 5,525,504 on MNIST, 6,895,888 with the decoder; 2,674,176 in the CIFAR-10 variant.

    Args:
        filters: output channels of the first convolution.
        types: number of primary capsule types.
        pose: rows and columns of a pose; W is columns x columns.
        routing, routing_options, nonlinearity, decoder, hidden: as in CapsNet. The released configuration has
            ``nonlinearity="relu-exponential"``.
        subtract_mean: subtract the mean training image from the input.
    """

    def __init__(
        self,
        image_shape: ImageShape,
        classes: int,
        *,
        filters: int = 256,
        types: int = 32,
        pose: tuple[int, int] = (2, 4),
        routing: str = "trainable",
        routing_options: dict[str, Any] | None = None,
        nonlinearity: str = "exponential",
        decoder: str = "conditional",
        hidden: tuple[int, int] = (512, 1024),
        subtract_mean: bool = False,
    ) -> None:
        squashing = _bounded(nonlinearity)
        grid, size = _grid(image_shape, (9, 1), (9, 2)), pose[0] * pose[1]
        voting = ConvTransform(grid, types, classes, child_pose=pose, parent_pose=pose, kernel=grid)
        routed = create_routing(routing, voting.shape, **(routing_options or {}))
        super().__init__(
            image_shape,
            classes,
            features=nn.Sequential(Conv2d(image_shape[0], filters, 9), nn.ReLU()),
            primary=PrimaryCapsules(
                filters, types, size, kernel=9, stride=2, nonlinearity=squashing.primary or squashing.function
            ),
            capsules=CapsuleStack(CapsuleLayer(voting, routed, squashing.function)),
            score=length_score,
            decoder=build_decoder(decoder, classes, size, image_shape, hidden),
            preprocess=MeanImage(image_shape) if subtract_mean else None,
        )


class GCapsNetMulti(CapsuleModel):
    """The multi-layer G-CapsNet: two convolutional capsule layers and a fully connected one, all with 8-D poses.

    751,008 parameters on CIFAR-10. The paper's table says 716K: it counts the first layer's couplings for a 3x3 kernel
    although the kernel is 4x4, and the last layer's couplings per pose element instead of per capsule.

    Args:
        filters: output channels of the first convolution.
        types: capsule types of the primary and the two convolutional capsule layers.
        routing, routing_options, nonlinearity: of all three capsule layers. The released configuration has
            ``nonlinearity="exponential-relu"``.
        subtract_mean: subtract the mean training image from the input.
    """

    def __init__(
        self,
        image_shape: ImageShape,
        classes: int,
        *,
        filters: int = 64,
        types: tuple[int, int, int] = (16, 8, 16),
        routing: str = "trainable",
        routing_options: dict[str, Any] | None = None,
        nonlinearity: str = "exponential",
        subtract_mean: bool = True,
    ) -> None:
        squashing = _bounded(nonlinearity)
        windows = (7, 1), (7, 2), (4, 1), (3, 2)
        first, second, third = (_grid(image_shape, *windows[:depth]) for depth in (2, 3, 4))
        vector, matrix = (1, 8), (4, 2)
        votings: list[Transform] = [
            ConvTransform(first, types[0], types[1], child_pose=vector, parent_pose=vector, kernel=4),
            ConvTransform(second, types[1], types[2], child_pose=matrix, parent_pose=matrix, kernel=3, stride=2),
            DenseTransform(third[0] * third[1] * types[2], classes, 8, 8),
        ]
        layers = [
            CapsuleLayer(voting, create_routing(routing, voting.shape, **(routing_options or {})), squashing.function)
            for voting in votings
        ]
        super().__init__(
            image_shape,
            classes,
            features=nn.Sequential(Conv2d(image_shape[0], filters, 7), nn.ReLU()),
            primary=PrimaryCapsules(
                filters, types[0], 8, kernel=7, stride=2, nonlinearity=squashing.primary or squashing.function
            ),
            capsules=CapsuleStack(*layers),
            score=length_score,
            preprocess=MeanImage(image_shape) if subtract_mean else None,
        )


class ConvNetChen2019(Model):
    """CNN baseline for CIFAR-10: G-CapsNet's convolutions and two linear layers, 9,737,226 parameters.

    Args:
        filters: output channels of both convolutions.
        hidden: units of the hidden layer.
        dropout: probability to drop a hidden unit in training, 0.5 in the released configuration.
        subtract_mean: subtract the mean training image from the input; the released configuration does not.
    """

    def __init__(
        self,
        image_shape: ImageShape,
        classes: int,
        *,
        filters: tuple[int, int] = (64, 256),
        hidden: int = 512,
        dropout: float = 0.0,
        subtract_mean: bool = True,
    ) -> None:
        height, width = (conv_output_size(side, (9, 1), (9, 2)) for side in image_shape[1:])
        super().__init__(image_shape, classes, preprocess=MeanImage(image_shape) if subtract_mean else None)
        self.layers = nn.Sequential(
            Conv2d(image_shape[0], filters[0], 9),
            nn.ReLU(),
            Conv2d(filters[0], filters[1], 9, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(filters[1] * height * width, hidden),
            nn.Sequential(nn.ReLU(), nn.Dropout(dropout)),  # one entry: saved weights are numbered by entry
            nn.Linear(hidden, classes),
        )

    def classify(self, images: Tensor) -> Output:
        logits = self.layers(images)
        return Output(logits.softmax(1), logits)


class LeNet(Model):
    """LeNet of the authors' framework: two convolutions with pooling, 500 hidden units, 431,080 parameters.

    Args:
        filters: output channels of both convolutions.
        hidden: units of the hidden layer.
    """

    def __init__(
        self, image_shape: ImageShape, classes: int, *, filters: tuple[int, int] = (20, 50), hidden: int = 500
    ) -> None:
        height, width = (conv_output_size(side, (5, 1), (2, 2), (5, 1), (2, 2)) for side in image_shape[1:])
        super().__init__(image_shape, classes)
        self.layers = nn.Sequential(
            Conv2d(image_shape[0], filters[0], 5),
            nn.MaxPool2d(2),
            Conv2d(filters[0], filters[1], 5),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(filters[1] * height * width, hidden),
            nn.ReLU(),
            nn.Linear(hidden, classes),
        )

    def classify(self, images: Tensor) -> Output:
        logits = self.layers(images)
        return Output(logits.softmax(1), logits)


def _grid(image_shape: ImageShape, *windows: tuple[int, int]) -> tuple[int, int]:
    height, width = (conv_output_size(side, *windows) for side in image_shape[1:])
    return height, width


def _bounded(name: str) -> NonlinearityRecord:
    """Return the nonlinearity of that name, whose lengths must be scores."""
    record = nonlinearities.get(name)
    if not record.bounded:
        raise TorchcapsError(f"this G-CapsNet needs a nonlinearity with lengths below 1, got '{name}': use 'squash'")
    return record


_SCHEDULE = "inverse:0.0001:0.75"
_MNIST = Recipe(loss="margin", reconstruction_weight=0.0005, schedule=_SCHEDULE, batch_size=100)
_CIFAR10 = Recipe(loss="margin", schedule=_SCHEDULE, batch_size=100)
_MULTI = Recipe(loss="margin", schedule=_SCHEDULE, batch_size=100, learning_rate=2e-3)
_PLAIN = Recipe(loss="cross-entropy", schedule=_SCHEDULE, batch_size=100)
_SMALL = {"filters": 64, "types": 8, "hidden": (256, 512)}
_FOR_CIFAR10: dict[str, Any] = {"filters": 64, "decoder": "none", "subtract_mean": True}


def _add(name: str, description: str, build: Any, recipe: Recipe, laptop: dict[str, Any], **more: Any) -> None:
    models.add(ModelRecord(name, description, "chen2019", build, recipe, laptop, **more))


_add("g-capsnet-fc", "CapsNet with trained couplings and exponential squash", g_capsnet_fc, _MNIST, _SMALL)
_add("g-capsnet-conv", "one kernel over the grid, 2x4 poses, trained couplings", GCapsNetConv, _MNIST, _SMALL)
_add(
    "g-capsnet-fc-cifar10",
    "g-capsnet-fc for CIFAR-10: 8-D class capsules, mean image, no decoder",
    partial(g_capsnet_fc, class_size=8, **_FOR_CIFAR10),
    _CIFAR10,
    {"types": 8},
    image=(3, 32, 32),
)
_add(
    "g-capsnet-conv-cifar10",
    "g-capsnet-conv for CIFAR-10: 8x8 matrices, mean image, no decoder",
    partial(GCapsNetConv, pose=(1, 8), **_FOR_CIFAR10),
    _CIFAR10,
    {"types": 8},
    image=(3, 32, 32),
)
_add(
    "g-capsnet-multi",
    "three capsule layers with trained couplings",
    GCapsNetMulti,
    _MULTI,
    {"types": (8, 4, 8)},
    image=(3, 32, 32),
)
_add(
    "cnn-chen2019",
    "two convolutions, two fully connected layers",
    ConvNetChen2019,
    _PLAIN,
    {"filters": (64, 64)},  # the convolutions of the laptop G-CapsNets; 512 hidden units keep the ratio of parameters
    earlier_laptop=({"filters": (32, 64), "hidden": 256},),
    image=(3, 32, 32),
    capsules=False,
)
_add("lenet", "two convolutions with pooling, 500 hidden units", LeNet, _PLAIN, {}, capsules=False)
