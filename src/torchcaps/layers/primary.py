"""Layers below the capsule layers: preprocessing of images, and primary capsules."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.functional import safe_norm
from torchcaps.kernels.batch_norm import batch_norm_relu
from torchcaps.layers.conv2d import Conv2d
from torchcaps.layers.nonlinearity import get_nonlinearity
from torchcaps.layers.transform import Capsules
from torchcaps.routing.base import Nonlinearity


class Standardize(nn.Module):
    """Standardize each image to zero mean and unit variance over its channels and pixels (hinton2018, section 5).

    The standard deviation is at least 0.001, a quarter of a gray level, so that a blank image stays blank and the
    gradient is finite.

    Shapes: (B, C, H, W) to the same.
    """

    def forward(self, images: Tensor) -> Tensor:
        centered = images - images.mean((1, 2, 3), keepdim=True)
        variance = centered.square().mean((1, 2, 3), keepdim=True)
        return centered / variance.clamp_min(1e-6).sqrt()


class MeanImage(nn.Module):
    """Subtract the mean of the training images (chen2019, on CIFAR-10).

    The mean is a buffer: it is saved with the weights, and is zero until :meth:`fit`.

    Shapes: (B, C, H, W) to the same.
    """

    mean: Tensor

    def __init__(self, image_shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(image_shape))

    def fit(self, images: Tensor) -> None:
        """Set the mean to that of these images."""
        self.mean.copy_(images.mean(0))

    def forward(self, images: Tensor) -> Tensor:
        return images - self.mean


class StridedStem(nn.Module):
    """An overlapping strided convolution with batch normalization, which reduces large images to square feature maps.

    The stride of each axis is chosen so that the feature maps have about the wanted size; bilinear interpolation does
    the rest.

    Args:
        image_shape: channels, height, width.
        channels: channels of the feature maps.
        size: height and width of the feature maps.

    Shapes: (B, C, H, W) to (B, channels, size, size).

    >>> stem = StridedStem((3, 128, 96), 8, 28)
    >>> stem(torch.zeros(2, 3, 128, 96)).shape, stem.conv.stride
    (torch.Size([2, 8, 28, 28]), (5, 3))
    """

    def __init__(self, image_shape: tuple[int, int, int], channels: int, size: int) -> None:
        super().__init__()
        self.size = size
        down, across = (max(1, round(side / size)) for side in image_shape[1:])
        kernel, padding = (2 * down - 1, 2 * across - 1), (down - 1, across - 1)
        self.conv = nn.Conv2d(image_shape[0], channels, kernel, (down, across), padding, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = batch_norm_relu(self.conv(images), self.norm)
        if features.shape[2:] == (self.size, self.size):
            return features
        return F.interpolate(features, (self.size, self.size), mode="bilinear", align_corners=False)


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
        bias: whether the convolution has a bias.

    Shapes: (B, C, H, W) to pose (B, H', W', types, size), and activation (B, H', W', types) if ``activated``.

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
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.types, self.size, self.activated = types, size, activated
        self.nonlinearity = get_nonlinearity(nonlinearity)
        self.conv = Conv2d(in_channels, types * size, kernel, stride, padding, bias=bias)

    def forward(self, features: Tensor) -> Capsules:
        maps = self.conv(features)  # (B, types*size, H, W)
        pose = maps.permute(0, 2, 3, 1).contiguous().unflatten(3, (self.types, self.size))  # (B, H, W, N, D)
        pose = self.nonlinearity(pose)
        return Capsules(pose, safe_norm(pose) if self.activated else None)


class DepthwisePrimaryCapsules(nn.Module):
    """A depthwise convolution whose kernel covers the whole grid: one capsule of each type.

    Mazzia, Salvetti, Chiaberge: Efficient-CapsNet, 2021, https://arxiv.org/abs/2101.12491, section 2.

    Each channel has its own kernel, so that an element of a pose summarizes one feature map.

    Args:
        types: capsule types.
        size: size of a capsule's pose; the feature maps have types * size channels.
        grid: height and width of the feature maps.
        nonlinearity, activated: as in :class:`PrimaryCapsules`.

    Shapes: (B, types*size, H, W) to pose (B, 1, 1, types, size).

    >>> DepthwisePrimaryCapsules(16, 8, (9, 9))(torch.zeros(2, 128, 9, 9)).pose.shape
    torch.Size([2, 1, 1, 16, 8])
    """

    def __init__(
        self,
        types: int,
        size: int,
        grid: tuple[int, int],
        *,
        nonlinearity: str | Nonlinearity = "squash",
        activated: bool = False,
    ) -> None:
        super().__init__()
        self.types, self.size, self.activated = types, size, activated
        self.nonlinearity = get_nonlinearity(nonlinearity)
        self.conv = nn.Conv2d(types * size, types * size, grid, groups=types * size)

    def forward(self, features: Tensor) -> Capsules:
        # The kernel covers the grid, so a product and a sum are the whole convolution, and faster than a general one.
        assert self.conv.bias is not None
        sums = (features * self.conv.weight.squeeze(1)).sum((2, 3)) + self.conv.bias  # (B, types*size)
        pose = self.nonlinearity(sums.unflatten(1, (self.types, self.size))[:, None, None])  # (B, 1, 1, N, D)
        return Capsules(pose, safe_norm(pose) if self.activated else None)


class NormalizedPrimaryCapsules(nn.Module):
    """A convolution with batch normalization for poses, and one with batch normalization and sigmoid for activations.

    Hahn, Pyeon, Kim: Self-Routing Capsule Networks, 2019,
    https://papers.nips.cc/paper/8982-self-routing-capsule-networks; Ribeiro, Leontidis, Kollias: Capsule Routing via
    Variational Bayes, 2020, https://arxiv.org/abs/1905.11455.

    Args:
        in_channels: channels of the feature maps.
        types: capsule types in each grid cell.
        size: size of a capsule's pose.
        kernel, stride, padding: of both convolutions, which have no bias.
        per_type: normalize all elements of a capsule type together, instead of each element by itself.
        activated: also return activations.
        nonlinearity: a registered name or a function of the normalized poses.

    Shapes: (B, C, H, W) to pose (B, H', W', types, size), and activation (B, H', W', types) if ``activated``.

    >>> NormalizedPrimaryCapsules(64, 32, 16, kernel=3, padding=1)(torch.zeros(2, 64, 8, 8)).activation.shape
    torch.Size([2, 8, 8, 32])
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
        per_type: bool = False,
        activated: bool = True,
        nonlinearity: str | Nonlinearity = "none",
    ) -> None:
        super().__init__()
        self.types, self.size, self.per_type = types, size, per_type
        self.nonlinearity = get_nonlinearity(nonlinearity)
        self.pose = nn.Conv2d(in_channels, types * size, kernel, stride, padding, bias=False)
        self.pose_norm = nn.BatchNorm2d(types if per_type else types * size)
        self.activation: nn.Module | None = None
        if activated:
            self.activation = nn.Sequential(
                nn.Conv2d(in_channels, types, kernel, stride, padding, bias=False), nn.BatchNorm2d(types), nn.Sigmoid()
            )

    def forward(self, features: Tensor) -> Capsules:
        maps = self.pose(features)  # (B, N*D, H, W)
        if self.per_type:
            height = maps.shape[2]
            together = self.pose_norm(maps.unflatten(1, (self.types, self.size)).flatten(2, 3))  # (B, N, D*H, W)
            maps = together.unflatten(2, (self.size, height)).flatten(1, 2)
        else:
            maps = self.pose_norm(maps)
        pose = self.nonlinearity(maps.permute(0, 2, 3, 1).unflatten(3, (self.types, self.size)))
        activation = None if self.activation is None else self.activation(features).permute(0, 2, 3, 1)
        return Capsules(pose, activation)


class MatrixPrimaryCapsules(nn.Module):
    r"""A 1x1 convolution that computes linear poses and logistic activations.

    Hinton, Sabour, Frosst: Matrix Capsules with EM Routing, 2018, https://openreview.net/forum?id=HJWLfGWRb, section 4.

    .. math:: M = W_M x + b_M, \quad a = \mathrm{sigmoid}(w_a \cdot x + b_a)

    Args:
        in_channels: channels of the feature maps.
        types: capsule types in each grid cell.
        size: size of a pose, 16 for a 4x4 matrix.

    Shapes: (B, C, H, W) to pose (B, H, W, types, size) and activation (B, H, W, types).

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
