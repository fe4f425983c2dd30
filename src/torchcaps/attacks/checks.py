"""What an attack can be made on, and the sentences for what it cannot."""

from __future__ import annotations

import math

from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.models import Model


def check_input(model: Model, images: Tensor, labels: Tensor, epsilon: float) -> None:
    """Refuse what would make an attack's outcome meaningless."""
    if not isinstance(model, Model):
        raise TorchcapsError(f"an attack needs a torchcaps Model, got {type(model).__name__}")
    if labels.ndim == 2:
        raise TorchcapsError(
            f"an attack needs one label per image, got {labels.shape[1]}: sets of overlaid things, such as "
            "multimnist, cannot be attacked"
        )
    if images.ndim != 4 or tuple(images.shape[1:]) != model.image_shape or not images.is_floating_point():
        raise TorchcapsError(
            f"the model takes images as floats (B, C, H, W) with (C, H, W) = {model.image_shape}, "
            f"got {images.dtype} {tuple(images.shape)}"
        )
    if not len(images) or labels.shape != images.shape[:1]:
        raise TorchcapsError(
            f"an attack needs images and as many labels, got {len(images)} images and labels {tuple(labels.shape)}"
        )
    low, high = images.min().item(), images.max().item()
    if not (0 <= low <= high <= 1):  # also where a pixel is not a number
        raise TorchcapsError(
            f"pixels must lie in [0, 1], got {low:.3g} to {high:.3g}: what prepares pixels belongs into the model"
        )
    if not 0 <= int(labels.min()) <= int(labels.max()) < model.classes:
        raise TorchcapsError(
            f"labels run from {int(labels.min())} to {int(labels.max())}, but the model has {model.classes} classes, "
            "counted from 0"
        )
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise TorchcapsError(f"epsilon must be a number of at least 0, in pixels of [0, 1], got {epsilon}")
