"""Primary capsules: from feature maps to the first layer of capsules."""

from __future__ import annotations

from torch import Tensor, nn

from torchcaps.functional import safe_norm
from torchcaps.layers.convolution import Conv2d
from torchcaps.layers.nonlinearity import get_nonlinearity
from torchcaps.layers.transform import Capsules
from torchcaps.routing.base import Nonlinearity


class PrimaryCapsules(nn.Module):
    """A convolution whose output channels are grouped into vectors (sabour2017).

    A capsule consists of ``size`` CHANNELS at one grid cell, not of neighboring pixels of one channel.

    Args:
        in_channels: channels of the feature maps.
        types: capsule types in each grid cell.
        size: size of a capsule's pose.
        kernel, stride, padding: of the convolution.
        nonlinearity: a registered name or a function of the poses.
        activated: also return the length of each vector as its activation, for routings that need activations.

    Shapes: (B, C, H, W) to pose (B, H', W', types, size), and activation (B, H', W', types) if ``activated``.

    >>> import torch
    >>> PrimaryCapsules(32, 8, 4, kernel=3, stride=2)(torch.zeros(2, 32, 13, 13)).pose.shape
    torch.Size([2, 6, 6, 8, 4])
    """

    def __init__(
        self,
        in_channels: int,
        types: int,
        size: int,
        *,
        kernel: int,
        stride: int = 1,
        padding: int = 0,
        nonlinearity: str | Nonlinearity = "squash",
        activated: bool = False,
    ) -> None:
        super().__init__()
        self.types, self.size, self.activated = types, size, activated
        self.nonlinearity = get_nonlinearity(nonlinearity)
        self.conv = Conv2d(in_channels, types * size, kernel, stride, padding)

    def forward(self, features: Tensor) -> Capsules:
        maps = self.conv(features)  # (B, types*size, H, W)
        pose = maps.permute(0, 2, 3, 1).contiguous().unflatten(3, (self.types, self.size))  # (B, H, W, N, D)
        pose = self.nonlinearity(pose)
        return Capsules(pose, safe_norm(pose) if self.activated else None)


class MatrixPrimaryCapsules(nn.Module):
    r"""A 1x1 convolution that computes linear poses and logistic activations.

    Hinton, Sabour, Frosst: Matrix Capsules with EM Routing, 2018, https://openreview.net/forum?id=HJWLfGWRb, section 4.

    .. math:: M = W_M x + b_M, \quad a = \mathrm{sigmoid}(w_a \cdot x + b_a)

    Args:
        in_channels: channels of the feature maps.
        types: capsule types in each grid cell.
        size: size of a pose, 16 for a 4x4 matrix.

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
