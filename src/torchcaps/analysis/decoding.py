"""Reconstructions from one model's decoder, fed with another model's capsules.

Yang, Li, Yu: Routing Towards Discriminative Power of Class Capsules, 2021, https://arxiv.org/abs/2103.04278, figure 2:
the capsules of a network that was trained without a decoder, drawn by the decoder of one that was trained with it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.models import Model


@torch.no_grad()
def draw_with_decoder_of(other: Model, model: Model, images: Tensor, labels: Tensor | None = None) -> Tensor:
    """Draw what ``model`` holds of the images with the decoder of ``other``.

    Args:
        labels: (B,), the classes to draw; None for the highest scores.

    Shapes: images (B, C, H, W) to (B, C', H', W'), the size of the images that ``other`` was built for.
    """
    if other.decoder is None:
        raise TorchcapsError(f"this {type(other).__name__} has no decoder to draw with: name a model that has one")
    output = model(images)
    if output.pose is None:
        raise TorchcapsError(f"{type(model).__name__} has no capsules that a decoder could draw")
    expected = next(layer for layer in other.decoder.modules() if isinstance(layer, nn.Linear)).in_features
    classes, size = output.pose.shape[1:]
    if classes != other.classes or classes * size != expected:
        raise TorchcapsError(
            f"the decoder was built for {other.classes} capsules of {expected // other.classes} numbers, and "
            f"{type(model).__name__} has {classes} of {size}: choose two models with capsules of the same shape"
        )
    return other.reconstruct(output, labels)
