"""Primary capsules: from feature maps to the first capsules."""

from __future__ import annotations

from torch import Tensor, nn

from torchcaps.layers.capsules import Capsules
from torchcaps.routing.base import Nonlinearity


class VectorPrimary(nn.Module):
    """A convolution whose channels, place by place, are cut into vectors (sabour2017).

    One capsule is made of ``size`` CHANNELS at one place, never of neighbouring pixels of one channel.

    Shapes: (B, C, H, W) to pose (B, H', W', types, size).
    """

    def __init__(
        self,
        in_channels: int,
        types: int,
        size: int,
        *,
        kernel: int,
        stride: int,
        nonlinearity: Nonlinearity,
    ) -> None:
        super().__init__()
        self.types, self.size, self.nonlinearity = types, size, nonlinearity
        self.conv = nn.Conv2d(in_channels, types * size, kernel, stride)

    def forward(self, features: Tensor) -> Capsules:
        maps = self.conv(features)  # (B, types*size, H, W)
        pose = maps.permute(0, 2, 3, 1).unflatten(3, (self.types, self.size))  # (B, H, W, N, D)
        return Capsules(self.nonlinearity(pose))
