"""Accuracy of a model on a set of images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.data import ImageSet, centre_crop
from torchcaps.models import Model
from torchcaps.progress import progress_bar
from torchcaps.train.objective import correct

BATCH = 250


@dataclass(frozen=True)
class Measured:
    """Accuracy, and how often each class (row) was taken for which (column), for sets with one label."""

    accuracy: float
    images: int
    confusion: Tensor


def seen_by(model: Model, images: Tensor) -> Tensor:
    """What a model sees of images outside training: of those larger than its own, the centre."""
    size = model.image_shape[1]
    return centre_crop(images, size) if images.shape[2] > size else images


def centre_scores(model: Model, images: Tensor) -> Tensor:
    """Scores (B, classes) of what a model sees of images."""
    scores: Tensor = model(seen_by(model, images)).scores
    return scores


@torch.no_grad()
def measure(
    model: Model,
    images: ImageSet,
    *,
    description: str = "testing",
    scores: Callable[[Model, Tensor], Tensor] = centre_scores,
) -> Measured:
    """Run the model over all images, in evaluation mode, on its device; ``scores`` says how it looks at them."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    right, confusion = 0, torch.zeros(model.classes, model.classes, dtype=torch.long)
    with progress_bar(description, len(images)) as advance:
        for indices in torch.arange(len(images)).split(BATCH):
            batch = images.batch(indices)
            found = scores(model, batch.images.to(device)).cpu()
            right += int(correct(found, batch.labels).sum())
            if batch.labels.ndim == 1:
                pairs = batch.labels * model.classes + found.argmax(1)
                confusion += torch.bincount(pairs, minlength=model.classes**2).view_as(confusion)
            advance(len(indices))
    model.train(was_training)
    return Measured(right / len(images), len(images), confusion)
