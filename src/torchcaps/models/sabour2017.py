"""CapsNet: two convolutions, primary capsules, class capsules, a decoder.

Sabour, Frosst, Hinton: Dynamic Routing Between Capsules, 2017, https://arxiv.org/abs/1710.09829.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.functional import log_odds, safe_norm, squash
from torchcaps.layers import CapsuleLayer, Decoder, DenseTransform, VectorPrimary
from torchcaps.models.base import Model, Output, convolved
from torchcaps.models.registry import ModelRecord, Recipe, models
from torchcaps.routing import create_routing

DECODERS = ("conditional", "normal", "none")


class CapsNet(Model):
    """The baseline that all capsule papers measure against.

    Parameters at 28, 36 and 40 pixels: 6,804,224, 9,425,664 and 11,227,904, and with the decoder 8,215,568,
    11,361,808 and 13,475,648.

    Args:
        image_shape: channels, height, width.
        classes: number of classes.
        channels: of the first convolution.
        types: of primary capsules.
        primary_size, class_size: numbers in one primary and one class capsule.
        kernel: side of both convolutions.
        routing: name of the routing to the class capsules.
        routing_options: its settings, such as ``{"iterations": 2}``.
        decoder: ``conditional`` draws from one class's capsule, ``normal`` from all, ``none`` not at all.
        hidden: units of the decoder's two hidden layers.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        channels: int = 256,
        types: int = 32,
        primary_size: int = 8,
        class_size: int = 16,
        kernel: int = 9,
        routing: str = "dynamic",
        routing_options: dict[str, Any] | None = None,
        decoder: str = "conditional",
        hidden: tuple[int, int] = (512, 1024),
    ) -> None:
        if decoder not in DECODERS:
            raise unknown_name("decoder", decoder, DECODERS)
        if min(channels, types, primary_size, class_size, kernel, *hidden) < 1:
            raise TorchcapsError("a CapsNet needs at least 1 channel, type, pose size, kernel pixel and hidden unit")
        grid = [convolved(side, (kernel, 1), (kernel, 2)) for side in image_shape[1:]]
        super().__init__(
            image_shape,
            classes,
            decoder=None
            if decoder == "none"
            else Decoder(classes, class_size, image_shape, hidden=hidden, conditional=decoder == "conditional"),
        )
        self.conv = nn.Conv2d(image_shape[0], channels, kernel)
        self.primary = VectorPrimary(channels, types, primary_size, kernel=kernel, stride=2, nonlinearity=squash)
        transform = DenseTransform(grid[0] * grid[1] * types, classes, primary_size, class_size)
        self.class_capsules = CapsuleLayer(
            transform, create_routing(routing, transform.shape, **(routing_options or {})), squash
        )

    def classify(self, images: Tensor) -> Output:
        capsules = self.class_capsules(self.primary(F.relu(self.conv(images))))
        pose = capsules.pose.flatten(1, 3)  # (B, classes, D)
        scores = safe_norm(pose)
        return Output(scores, log_odds(scores), pose)


models.add(
    ModelRecord(
        name="capsnet",
        description="two convolutions, 8-D primary capsules, 16-D class capsules, dynamic routing, decoder",
        paper="sabour2017",
        build=CapsNet,
        recipe=Recipe(loss="margin", reconstruction_weight=0.0005),
        laptop={"channels": 64, "types": 8, "hidden": (256, 512)},
    )
)
