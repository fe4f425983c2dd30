"""What a model does to pixels first."""

from __future__ import annotations

from torch import Tensor, nn


class Standardize(nn.Module):
    """Each image to zero mean and unit variance, over all its channels and pixels (hinton2018, section 5).

    The deviation is kept at 1 / sqrt(number of values) or more, so that a blank image stays blank and the gradient
    is finite.

    Shapes: (B, C, H, W) to the same.
    """

    def forward(self, images: Tensor) -> Tensor:
        centred = images - images.mean((1, 2, 3), keepdim=True)
        values = images[0].numel()
        variance = centred.square().mean((1, 2, 3), keepdim=True)
        return centred / variance.clamp_min(1 / values).sqrt()
