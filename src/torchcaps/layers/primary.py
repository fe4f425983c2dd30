"""Primary capsules: from feature maps to the first capsules."""

from __future__ import annotations

from torch import Tensor, nn

from torchcaps.functional import safe_norm
from torchcaps.layers.capsules import Capsules
from torchcaps.layers.convolution import Conv2d
from torchcaps.routing.base import Nonlinearity


class VectorPrimary(nn.Module):
    """A convolution whose channels, place by place, are cut into vectors (sabour2017).

    One capsule is made of ``size`` CHANNELS at one place, never of neighbouring pixels of one channel.

    Args:
        activated: also give the length of each vector as its activation, for routings that weigh children by it.

    Shapes: (B, C, H, W) to pose (B, H', W', types, size), and activation (B, H', W', types) if asked for.
    """

    def __init__(
        self,
        in_channels: int,
        types: int,
        size: int,
        *,
        kernel: int,
        stride: int,
        padding: int = 0,
        nonlinearity: Nonlinearity,
        activated: bool = False,
    ) -> None:
        super().__init__()
        self.types, self.size, self.nonlinearity, self.activated = types, size, nonlinearity, activated
        self.conv = Conv2d(in_channels, types * size, kernel, stride, padding)

    def forward(self, features: Tensor) -> Capsules:
        maps = self.conv(features)  # (B, types*size, H, W)
        pose = maps.permute(0, 2, 3, 1).contiguous().unflatten(3, (self.types, self.size))  # (B, H, W, N, D)
        pose = self.nonlinearity(pose)
        return Capsules(pose, safe_norm(pose) if self.activated else None)
