"""Capsules with inverted dot-product attention routing, layer normalization and concurrent iterations.

Tsai, Srivastava, Goh, Salakhutdinov: Capsules with Inverted Dot-Product Attention Routing, 2020,
https://arxiv.org/abs/2002.04764.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor, nn

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.layers import CapsuleLayer, ConvTransform, PrimaryCapsules, ResNet, build_stack, feature_shape
from torchcaps.models.base import conv_output_size
from torchcaps.models.capsule_model import CapsuleModel
from torchcaps.models.registry import ModelRecord, Recipe, models
from torchcaps.routing import create_routing

TRUNKS = ("resnet", "convolution")


class InvertedCapsNet(CapsuleModel):
    """A convolutional network, primary capsules, two convolutional capsule layers and class capsules.

    Parameters for CIFAR-10: 1,828,816, and 561,296 with one convolution of 256 channels instead of the residual one.

    Args:
        trunk: ``resnet``, seven residual blocks, or ``convolution``, one convolution with stride 2.
        widths: channels of the two stages of the residual network; the second is that of the convolution.
        types: capsule types of the primary and the two convolutional capsule layers.
        pose_side: a pose is a matrix of pose_side x pose_side.
        routing, routing_options: as in CapsNet; routings that need activations are not supported.
        routing_order: ``concurrent``, all layers iterate together, or ``sequential``.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        trunk: str = "resnet",
        widths: tuple[int, int] = (64, 128),
        types: tuple[int, int, int] = (32, 32, 32),
        pose_side: int = 4,
        routing: str = "inverted-attention",
        routing_options: dict[str, Any] | None = None,
        routing_order: str = "concurrent",
    ) -> None:
        if trunk not in TRUNKS:
            raise unknown_name("trunk", trunk, TRUNKS)
        if len(types) != 3 or min(*widths, *types, pose_side) < 1:
            raise TorchcapsError(f"inverted-capsnet needs three numbers of types of at least 1, got {types}")
        if image_shape[1] != image_shape[2]:
            raise TorchcapsError(f"inverted-capsnet needs square images, got {image_shape[1]}x{image_shape[2]} pixels")
        features: nn.Module
        if trunk == "resnet":
            features = ResNet(image_shape[0], widths=tuple(widths), blocks=(3, 4), shortcut="convolution")
        else:
            features = nn.Sequential(nn.Conv2d(image_shape[0], widths[1], 3, 2, 1), nn.ReLU())
        channels, side, _ = feature_shape(features, image_shape)
        conv_output_size(side, (3, 2), (3, 1))
        size, layers, grid = pose_side**2, [], (side, side)
        for below, above, stride in ((types[0], types[1], 2), (types[1], types[2], 1), (types[2], classes, 0)):
            kernel = 3 if stride else grid[0]
            voting = ConvTransform(
                grid,
                below,
                above,
                child_pose=(pose_side, pose_side),
                parent_pose=(pose_side, pose_side),
                kernel=kernel,
                stride=stride or 1,
                spread=(above / (pose_side * below * kernel**2)) ** 0.5,
            )
            routed = create_routing(routing, voting.shape, **(routing_options or {}))
            layers.append(CapsuleLayer(voting, routed, PoseLayerNorm(size)))
            grid = voting.grid
        super().__init__(
            image_shape,
            classes,
            features=features,
            primary=PrimaryCapsules(channels, types[0], size, kernel=1, bias=False, nonlinearity=PoseLayerNorm(size)),
            capsules=build_stack(routing_order, *layers),
            score=LinearScore(size),
        )


class PoseLayerNorm(nn.LayerNorm):
    """Layer normalization of each pose; computes in the precision of its input.

    Shapes: (..., size) to the same.
    """

    def forward(self, pose: Tensor) -> Tensor:
        return nn.functional.layer_norm(
            pose, self.normalized_shape, self.weight.to(pose.dtype), self.bias.to(pose.dtype), self.eps
        )


class LinearScore(nn.Module):
    """The logit of a class is a linear function of its pose, the same for all classes; its score is the softmax.

    Shapes: (B, classes, size) to scores and logits (B, classes).
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, 1, bias=False)  # the softmax would remove a bias that all classes share

    def forward(self, pose: Tensor) -> tuple[Tensor, Tensor]:
        logits = nn.functional.linear(pose, self.linear.weight.to(pose.dtype)).squeeze(2)
        return logits.softmax(1), logits


_RECIPE = Recipe(
    loss="cross-entropy",
    optimizer="sgd",
    learning_rate=0.1,
    schedule="step:0.1:58650",  # the paper's first decay, after 150 of 350 epochs of CIFAR-10
    batch_size=128,
    laptop_schedule="one-cycle:0.05:0.1",
)
for name, description, settings, laptop in (
    ("inverted-capsnet", "residual network, three capsule layers, concurrent inverted attention routing", {}, (16, 32)),
    (
        "inverted-capsnet-560k",
        "inverted-capsnet on one convolution instead of a residual network",
        {"trunk": "convolution", "widths": (64, 256)},
        (16, 64),
    ),
):
    models.add(
        ModelRecord(
            name=name,
            description=description,
            paper="tsai2020",
            build=partial(InvertedCapsNet, **settings),  # type: ignore[arg-type]
            recipe=_RECIPE,
            laptop={"widths": laptop, "types": (8, 8, 8)},
            image=(3, 32, 32),
        )
    )
