"""What a model does to pixels first."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Standardize(nn.Module):
    """Each image to zero mean and unit variance, over all its channels and pixels (hinton2018, section 5).

    The deviation is kept at 0.001 or more, a quarter of a grey level, so that a blank image stays blank and the
    gradient is finite.

    Shapes: (B, C, H, W) to the same.
    """

    def forward(self, images: Tensor) -> Tensor:
        centred = images - images.mean((1, 2, 3), keepdim=True)
        variance = centred.square().mean((1, 2, 3), keepdim=True)
        return centred / variance.clamp_min(1e-6).sqrt()


class MeanImage(nn.Module):
    """The mean of the training images taken away from each image (chen2019, on CIFAR-10).

    The mean is a buffer: it is saved with the weights, and zero until :meth:`fit`.

    Shapes: (B, C, H, W) to the same.
    """

    mean: Tensor

    def __init__(self, image_shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(image_shape))

    def fit(self, images: Tensor) -> None:
        """Learn the mean of these images."""
        self.mean.copy_(images.mean(0))

    def forward(self, images: Tensor) -> Tensor:
        return images - self.mean
