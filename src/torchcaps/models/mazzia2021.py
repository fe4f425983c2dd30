"""Efficient-CapsNet: four convolutions, depthwise primary capsules and self-attention routing.

Mazzia, Salvetti, Chiaberge: Efficient-CapsNet: Capsule Network with Self-Attention Routing, 2021,
https://arxiv.org/abs/2101.12491.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn

from torchcaps.errors import TorchcapsError
from torchcaps.functional import exponential_squash
from torchcaps.layers import CapsuleLayer, CapsuleStack, Conv2d, DenseTransform, DepthwisePrimaryCapsules
from torchcaps.models.base import conv_output_size
from torchcaps.models.capsule_model import CapsuleModel, build_decoder, length_score
from torchcaps.models.registry import ModelRecord, Recipe, models
from torchcaps.routing import create_routing

KERNELS = ((5, 1), (3, 1), (3, 1), (3, 2))  # kernel and stride of each convolution


class EfficientCapsNet(CapsuleModel):
    """Efficient-CapsNet, a capsule network with 16 primary capsules in all.

    Parameters at 28 pixels: 161,824, and with the decoder 1,573,168.

    Args:
        filters: output channels of the first three convolutions; the fourth has types * primary_size.
        types: number of primary capsules.
        primary_size: size of a primary capsule's pose.
        class_size: size of a class capsule's pose.
        routing, routing_options, decoder, hidden: as in CapsNet.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        filters: tuple[int, int, int] = (32, 64, 64),
        types: int = 16,
        primary_size: int = 8,
        class_size: int = 16,
        routing: str = "self-attention",
        routing_options: dict[str, Any] | None = None,
        decoder: str = "conditional",
        hidden: tuple[int, int] = (512, 1024),
    ) -> None:
        if len(filters) != 3 or min(*filters, types, primary_size, class_size, *hidden) < 1:
            raise TorchcapsError(
                f"Efficient-CapsNet needs three filters, and types and sizes of at least 1, got filters {filters}"
            )
        height, width = (conv_output_size(side, *KERNELS) for side in image_shape[1:])
        layers: list[nn.Module] = []
        below = image_shape[0]
        for channels, (kernel, stride) in zip((*filters, types * primary_size), KERNELS, strict=True):
            layers += [Conv2d(below, channels, kernel, stride), nn.ReLU(), nn.BatchNorm2d(channels)]
            below = channels
        voting = DenseTransform(types, classes, primary_size, class_size)
        routed = create_routing(routing, replace(voting.shape, activations=True), **(routing_options or {}))
        super().__init__(
            image_shape,
            classes,
            features=nn.Sequential(*layers),
            primary=DepthwisePrimaryCapsules(
                types,
                primary_size,
                (height, width),
                nonlinearity=exponential_squash,
                activated=routed.needs_activation,
            ),
            capsules=CapsuleStack(CapsuleLayer(voting, routed, exponential_squash)),
            score=length_score,
            decoder=build_decoder(decoder, classes, class_size, image_shape, hidden),
        )


models.add(
    ModelRecord(
        name="efficient-capsnet",
        description="four convolutions, 16 primary capsules by depthwise convolution, self-attention routing",
        paper="mazzia2021",
        build=EfficientCapsNet,
        recipe=Recipe(
            loss="margin",
            reconstruction_weight=0.0005,
            learning_rate=5e-4,
            schedule="exponential:0.97:3750",  # per epoch of MNIST
            batch_size=16,
            laptop_batch_size=16,
        ),
        laptop={"filters": (16, 32, 32), "types": 8, "hidden": (256, 512)},
    )
)
