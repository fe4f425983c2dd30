r"""AR CapsNet: convolutional capsule layers with attention routing.

Choi, Seo, Im, Kang: Attention Routing Between Capsules, 2019, https://arxiv.org/abs/1907.01750.

.. math:: \text{score}_n = |u^L_n| / \sqrt{D}
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.functional import log_odds, safe_norm
from torchcaps.kernels.dropout import dropout
from torchcaps.layers import (
    AffineTanh,
    CapsuleLayer,
    Capsules,
    CapsuleStack,
    ChannelConvTransform,
    Conv2d,
    PrimaryCapsules,
    Sequential,
)
from torchcaps.models.capsule_model import CapsuleModel, build_decoder
from torchcaps.models.registry import ModelRecord, Recipe, models
from torchcaps.routing import create_routing

MOST_LAYERS = 100  # settings may come from an untrusted file


class ARCapsNet(CapsuleModel):
    """A capsule network with attention routing, which needs no iterations, and residual connections.

    Parameters with the decoder: MNIST (32-D, 1 layer) 5,312,528; affNIST at 40 pixels (16-D, 1 layer) 3,500,832;
    CIFAR-10 with four layers 3,996,384 (16-D) and 9,566,336 (32-D).

    Args:
        filters: output channels of the two convolutions.
        types: capsule types of the primary and of every convolutional capsule layer.
        primary_size: size of a primary capsule's pose.
        capsule_size: size of the pose in all higher layers.
        layers: number of convolutional capsule layers between primary and class capsules. The first has stride 2, the
            others stride 1 and a residual connection.
        dropout: dropout probability of the input of each capsule layer.
        routing, routing_options, decoder, hidden: as in CapsNet.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        filters: int = 64,
        types: int = 8,
        primary_size: int = 16,
        capsule_size: int = 32,
        layers: int = 1,
        dropout: float = 0.5,
        routing: str = "attention",
        routing_options: dict[str, Any] | None = None,
        decoder: str = "conditional",
        hidden: tuple[int, int] = (512, 512),
    ) -> None:
        if layers < 0 or not 0 <= dropout < 1:
            raise TorchcapsError(f"ar-capsnet takes layers >= 0 and 0 <= dropout < 1, got {layers} and {dropout}")
        if layers > MOST_LAYERS:
            raise TorchcapsError(f"ar-capsnet takes at most {MOST_LAYERS} layers, got {layers}")
        grid, below, stack = ((image_shape[1] + 1) // 2, (image_shape[2] + 1) // 2), primary_size, []
        for index in range(layers + 1):
            if index < layers:
                stride = 2 if index == 0 else 1
                voting = ChannelConvTransform(
                    grid, types, types, below, capsule_size, kernel=3, stride=stride, padding=1
                )
            else:
                voting = ChannelConvTransform(grid, types, classes, below, capsule_size, kernel=grid)
            routed = create_routing(routing, voting.shape, **(routing_options or {}))
            stack.append(CapsuleLayer(voting, routed, AffineTanh(voting.shape.parents, capsule_size)))
            grid, below = voting.grid, capsule_size
        super().__init__(
            image_shape,
            classes,
            features=Sequential(
                Conv2d(image_shape[0], filters, 3, padding=1),
                nn.BatchNorm2d(filters),
                nn.ReLU(),
                Conv2d(filters, filters, 3, padding=1),
                nn.BatchNorm2d(filters),
                nn.ReLU(),
            ),
            primary=PrimaryCapsules(
                filters,
                types,
                primary_size,
                kernel=3,
                stride=2,
                padding=1,
                nonlinearity=nn.Sequential(nn.ReLU(), AffineTanh(types, primary_size)),
            ),
            capsules=ResidualStack(*stack, dropout=dropout),
            score=normalized_length_score,
            decoder=build_decoder(decoder, classes, capsule_size, image_shape, hidden),
        )


class ResidualStack(CapsuleStack):
    """Capsule layers with dropout before each layer, and a residual connection if input and output have one shape."""

    def __init__(self, *layers: CapsuleLayer, dropout: float) -> None:
        super().__init__(*layers)
        if self.alternating:
            raise TorchcapsError(
                "ar-capsnet does not support routings that learn outside backpropagation, because of the dropout and "
                "residual connections between its capsule layers: choose another routing"
            )
        self.dropout = dropout

    def forward(self, capsules: Capsules) -> tuple[Capsules, Tensor | None]:
        for layer in self:
            routed = layer(Capsules(dropout(capsules.pose, self.dropout, self.training)))
            agree = routed.pose.shape == capsules.pose.shape
            capsules = Capsules(routed.pose + capsules.pose) if agree else routed
        return capsules, None


def normalized_length_score(pose: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and logits of capsules with elements in (-1, 1): the length divided by the maximum length."""
    scores = safe_norm(pose) / pose.shape[2] ** 0.5
    return scores, log_odds(scores)


_RECIPE = Recipe(
    loss="margin",
    reconstruction_weight=0.3,
    reconstruction="mean",
    optimizer="rmsprop",
    schedule="inverse:0.0001:1",
    batch_size=100,
)
_LAPTOP = {"filters": 32, "types": 4, "capsule_size": 16, "hidden": (256, 256)}

for name, description, settings, image in (
    ("ar-capsnet", "attention routing, one convolutional capsule layer", {}, (1, 28, 28)),
    ("ar-capsnet-affnist", "ar-capsnet with 16-D capsules", {"capsule_size": 16}, (1, 40, 40)),
    ("ar-capsnet-cifar10", "ar-capsnet with four convolutional capsule layers", {"layers": 4}, (3, 32, 32)),
):
    models.add(
        ModelRecord(
            name=name,
            description=description,
            paper="choi2019",
            build=partial(ARCapsNet, **settings),  # type: ignore[arg-type]
            recipe=_RECIPE,
            laptop=_LAPTOP,
            image=image,
        )
    )
