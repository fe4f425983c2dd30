"""Preprocessing layers of models."""

from __future__ import annotations

import torch
from torch import Tensor, nn


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
