"""Accuracy of a model on a set of images."""

from __future__ import annotations

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


@torch.no_grad()
def measure(model: Model, images: ImageSet, *, description: str = "testing") -> Measured:
    """Run the model over all images, in evaluation mode, on the device it is on."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    right, confusion = 0, torch.zeros(model.classes, model.classes, dtype=torch.long)
    with progress_bar(description, len(images)) as advance:
        for indices in torch.arange(len(images)).split(BATCH):
            batch = images.batch(indices)
            scores = model(seen_by(model, batch.images).to(device)).scores.cpu()
            right += int(correct(scores, batch.labels).sum())
            if batch.labels.ndim == 1:
                pairs = batch.labels * model.classes + scores.argmax(1)
                confusion += torch.bincount(pairs, minlength=model.classes**2).view_as(confusion)
            advance(len(indices))
    model.train(was_training)
    return Measured(right / len(images), len(images), confusion)
