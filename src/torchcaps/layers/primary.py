"""Primary capsules: from feature maps to the first capsules."""

from __future__ import annotations

from torch import Tensor, nn

from torchcaps.functional import safe_norm
from torchcaps.layers.convolution import Conv2d
from torchcaps.layers.transforms import Capsules
from torchcaps.routing.base import Nonlinearity


# MERGED Primary capsules with a pose and an activation of their own.
class PrimaryCapsules(nn.Module):
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


class MatrixPrimaryCapsules(nn.Module):
    r"""A 1x1 convolution to linear poses and logistic activations.

    Hinton, Sabour, Frosst: Matrix Capsules with EM Routing, 2018, https://openreview.net/forum?id=HJWLfGWRb, section 4.

    .. math:: M = W_M x + b_M, \quad a = \mathrm{sigmoid}(w_a \cdot x + b_a)

    Args:
        in_channels: of the feature maps.
        types: of capsules.
        size: numbers in a pose, 16 for a 4x4 matrix.

    Shapes: (B, C, H, W) to pose (B, H, W, types, size) and activation (B, H, W, types).

    >>> import torch
    >>> MatrixPrimaryCapsules(32, 8)(torch.zeros(2, 32, 14, 14)).activation.shape
    torch.Size([2, 14, 14, 8])
    """

    def __init__(self, in_channels: int, types: int, size: int = 16) -> None:
        super().__init__()
        self.types, self.size = types, size
        self.conv = nn.Conv2d(in_channels, types * (size + 1), 1)

    def forward(self, features: Tensor) -> Capsules:
        maps = self.conv(features).permute(0, 2, 3, 1)  # (B, H, W, N*D + N)
        pose, activation = maps.split([self.types * self.size, self.types], dim=3)
        return Capsules(pose.unflatten(3, (self.types, self.size)), activation.sigmoid())
