"""Reconstruction loss."""

from __future__ import annotations

from torch import Tensor

from torchcaps.errors import unknown_name


def reconstruction_loss(drawn: Tensor, images: Tensor, *, over_pixels: str = "sum") -> Tensor:
    """Squared error over the pixels of an image, averaged over the batch.

    Args:
        over_pixels: ``sum`` (sabour2017, whose weight is 0.0005) or ``mean`` (choi2019, whose weight is 0.3). At
            28x28 a weight of 0.0005 on the sum is 0.392 on the mean.
    """
    if over_pixels not in ("sum", "mean"):
        raise unknown_name("reconstruction", over_pixels, ("sum", "mean"))
    errors = (drawn - images).square().flatten(1)  # (B, pixels)
    return (errors.sum(1) if over_pixels == "sum" else errors.mean(1)).mean()
