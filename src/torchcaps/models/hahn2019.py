"""SR-CapsNet: a convolutional network with a capsule head of any routing, and the same network with plain heads.

Hahn, Pyeon, Kim: Self-Routing Capsule Networks, 2019, https://papers.nips.cc/paper/8982-self-routing-capsule-networks.

The paper's protocol is fair to all routings: one network below, and six heads that differ only in how they gather its
features: average pooling, max pooling, a fully connected layer, and dynamic, EM and self-routing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.functional import squash
from torchcaps.layers import (
    CapsuleLayer,
    CapsuleStack,
    Conv2d,
    ConvTransform,
    DenseTransform,
    NormalizedPrimaryCapsules,
    NoVotes,
    ResNet,
    Sequential,
    Transform,
    feature_shape,
)
from torchcaps.layers.nonlinearity import identity
from torchcaps.models.base import Model, Output
from torchcaps.models.capsule_model import CapsuleModel, activation_share, length_share
from torchcaps.models.registry import ModelRecord, Recipe, models
from torchcaps.routing import create_routing

TRUNKS = ("resnet20", "convnet7")
VOTES = ("none", "vector", "matrix")
# The paper's votes of each routing; the routings that it does not have use matrices.
VOTES_OF = {"self-routing": "none", "dynamic": "vector"}
HEADS = ("average", "max", "fc")
SMALLEST = 4  # pixels of an image


class SRCapsNet(CapsuleModel):
    """A convolutional network, primary capsules and one layer of class capsules with any routing.

    Parameters for CIFAR-10 on ResNet-20: 931,664 with self-routing, 5,807,888 with dynamic and 911,204 with EM routing.

    Args:
        trunk: the network below, ``resnet20`` or ``convnet7`` (seven convolutions, the paper's for smallNORB).
        width: channels of its first stage.
        types: primary capsules in each grid cell.
        capsule_size: size of a pose.
        routing, routing_options: as in CapsNet.
        votes: ``vector``, a full matrix for each pair of child and class; ``matrix``, poses as 4x4 matrices; ``none``,
            activations only; by default the paper's for this routing.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        trunk: str = "resnet20",
        width: int = 16,
        types: int = 32,
        capsule_size: int = 16,
        routing: str = "self-routing",
        routing_options: dict[str, Any] | None = None,
        votes: str | None = None,
    ) -> None:
        features = _build_trunk(trunk, image_shape, width)
        if min(types, capsule_size) < 1:
            raise TorchcapsError(f"sr-capsnet needs types and capsule_size of at least 1, got {types}, {capsule_size}")
        channels, *grid = feature_shape(features, image_shape)
        votes = VOTES_OF.get(routing, "matrix") if votes is None else votes
        voting = _build_votes(votes, (grid[0], grid[1]), types, classes, capsule_size)
        routed = create_routing(routing, replace(voting.shape, activations=True), **(routing_options or {}))
        if votes == "none" and not routed.gives_activation:
            raise TorchcapsError(f"routing '{routing}' needs votes to score the classes: set votes to vector or matrix")
        super().__init__(
            image_shape,
            classes,
            features=features,
            primary=NormalizedPrimaryCapsules(
                channels,
                types,
                capsule_size,
                kernel=3,
                padding=1,
                activated=routed.needs_activation,
                nonlinearity=identity if routed.needs_activation else squash,
            ),
            capsules=CapsuleStack(CapsuleLayer(voting, routed, identity if routed.gives_activation else squash)),
            score=length_share,
            score_activation=activation_share,
        )


class PlainHead(Model):
    """The network of :class:`SRCapsNet` with a plain head.

    Parameters for CIFAR-10 on ResNet-20: 269,722 with pooling, 892,698 with ``fc``.

    Args:
        trunk: the network below, ``resnet20`` or ``convnet7``.
        width: channels of its first stage.
        head: ``average`` or ``max``, pooling and a linear layer; ``fc``, a convolution with as many channels as the
            primary capsules, and a linear layer on all of its features.
        filters: output channels of the convolution of ``fc``.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        trunk: str = "resnet20",
        width: int = 16,
        head: str = "average",
        filters: int = 512,
    ) -> None:
        if head not in HEADS:
            raise unknown_name("head", head, HEADS)
        super().__init__(image_shape, classes)
        self.features = _build_trunk(trunk, image_shape, width)
        below, height, breadth = feature_shape(self.features, image_shape)
        if head == "fc":
            self.head = Sequential(
                Conv2d(below, filters, 3, padding=1, bias=False),
                nn.BatchNorm2d(filters),
                nn.ReLU(),
                nn.Flatten(),
                nn.Linear(filters * height * breadth, classes),
            )
        else:
            pool = nn.AdaptiveAvgPool2d(1) if head == "average" else nn.AdaptiveMaxPool2d(1)
            self.head = Sequential(pool, nn.Flatten(), nn.Linear(below, classes))

    def classify(self, images: Tensor) -> Output:
        logits = self.head(self.features(images))
        return Output(logits.softmax(1), logits)


def _build_trunk(name: str, image_shape: tuple[int, int, int], width: int) -> nn.Module:
    if name not in TRUNKS:
        raise unknown_name("trunk", name, TRUNKS)
    if width < 1:
        raise TorchcapsError(f"sr-capsnet needs a width of at least 1, got {width}")
    if min(image_shape[1:]) < SMALLEST:
        raise TorchcapsError(f"sr-capsnet needs images of at least {SMALLEST} pixels, got {min(image_shape[1:])}")
    if name == "resnet20":
        return ResNet(image_shape[0], widths=(width, 2 * width, 4 * width))
    layers: list[nn.Module] = []
    below = image_shape[0]
    for factor, stride in ((1, 1), (2, 2), (2, 1), (4, 2), (4, 1), (8, 2)):
        channels = factor * width
        layers += [Conv2d(below, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
        below = channels
    return Sequential(*layers)


def _build_votes(votes: str, grid: tuple[int, int], types: int, classes: int, size: int) -> Transform:
    if votes not in VOTES:
        raise unknown_name("votes", votes, VOTES)
    children = grid[0] * grid[1] * types
    if votes == "none":
        return NoVotes(children, classes, size)
    if votes == "vector":
        return DenseTransform(children, classes, size, size)
    side = round(size**0.5)
    if side * side != size or grid[0] != grid[1]:
        raise TorchcapsError(
            f"matrix votes need a square capsule_size and a square grid, got {size} and {grid[0]}x{grid[1]}: "
            "use votes 'vector'"
        )
    pose = (side, side)
    return ConvTransform(grid, types, classes, child_pose=pose, parent_pose=pose, kernel=grid[0], start="identity")


_RECIPE = Recipe(
    loss="cross-entropy",
    optimizer="sgd",
    learning_rate=0.1,
    schedule="step:0.1:117000",  # the paper's first decay, after 150 of 350 epochs of CIFAR-10
    batch_size=64,
    laptop_schedule="one-cycle:0.1:0.1",
)
models.add(
    ModelRecord(
        name="sr-capsnet",
        description="ResNet-20 with a capsule head of any routing; self-routing by default",
        paper="hahn2019",
        build=SRCapsNet,
        recipe=_RECIPE,
        laptop={"width": 10, "types": 12},
        image=(3, 32, 32),
    )
)
models.add(
    ModelRecord(
        name="resnet20",
        description="ResNet-20 with a plain head: average pooling, max pooling or a fully connected layer",
        paper="hahn2019",
        build=PlainHead,
        recipe=_RECIPE,
        laptop={"width": 10, "filters": 192},
        capsules=False,
        image=(3, 32, 32),
    )
)
