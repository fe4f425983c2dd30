"""What training minimises: the classification loss and, where there is a decoder, the reconstruction loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchcaps.data import ImageSet, center_crop
from torchcaps.losses import losses, one_hot, reconstruction_loss
from torchcaps.models import Model, Output
from torchcaps.progress import progress_bar
from torchcaps.train.config import RunConfig


# MERGED Accuracy of a model on a set of images.
class Objective(nn.Module):
    """A model with its loss.

    One module, so that whatever wraps a model for many devices wraps the decoder's pass as well.
    """

    def __init__(self, model: Model, config: RunConfig) -> None:
        super().__init__()
        self.model = model
        self.loss = losses.get(config.loss)
        self.over_pixels, self.reconstruction_weight = config.reconstruction, config.reconstruction_weight

    def forward(
        self, images: Tensor, labels: Tensor, drawings: Tensor | None, progress: float
    ) -> tuple[Tensor, Output]:
        """The loss of a batch and the model's answer.

        Args:
            images: (B, C, H, W).
            labels: (B,), or (B, L) with L things in one image.
            drawings: (B, L, C, H, W), what to draw for each label; None: the image itself.
            progress: share of the training that is done, 0 to 1; some losses change with it.
        """
        # The training loop checks the loss: it names the batch, keeps the last good state and stops all processes.
        output = self.model(images, check_finite=False)
        present = one_hot(labels, self.model.classes)
        total = self.loss.compute(output.scores, output.logits, present, progress)
        if self.reconstruction_weight and self.model.decoder is not None:
            wanted = images.unsqueeze(1) if drawings is None else drawings
            total = total + self.reconstruction_weight * self._drawing_error(output, labels, wanted)
        return total, output

    def _drawing_error(self, output: Output, labels: Tensor, wanted: Tensor) -> Tensor:
        columns = labels.reshape(len(labels), labels.shape[1:].numel())  # (B, L)
        errors = [
            reconstruction_loss(
                self.model.reconstruct(output, columns[:, column]), wanted[:, column], over_pixels=self.over_pixels
            )
            for column in range(columns.shape[1])
        ]
        return torch.stack(errors).sum()


def correct(scores: Tensor, labels: Tensor) -> Tensor:
    """Which images are right: of L labels, all L must be the L highest scores. Shape (B,)."""
    wanted = labels.reshape(len(labels), labels.shape[1:].numel())
    highest = scores.topk(wanted.shape[1], dim=1).indices
    return (highest.sort(1).values == wanted.sort(1).values).all(1)


BATCH = 250


@dataclass(frozen=True)
class AccuracyResult:
    """Accuracy, and how often each class (row) was taken for which (column), for sets with one label."""

    accuracy: float
    images: int
    confusion: Tensor


def crop_to_model(model: Model, images: Tensor) -> Tensor:
    """What a model sees of images outside training: of those larger than its own, the centre."""
    size = model.image_shape[1]
    return center_crop(images, size) if images.shape[2] > size else images


def center_scores(model: Model, images: Tensor) -> Tensor:
    """Scores (B, classes) of what a model sees of images."""
    scores: Tensor = model(crop_to_model(model, images)).scores
    return scores


@torch.no_grad()
def evaluate_accuracy(
    model: Model,
    images: ImageSet,
    *,
    description: str = "testing",
    scores: Callable[[Model, Tensor], Tensor] = center_scores,
) -> AccuracyResult:
    """Run the model should_stop all images, in evaluation mode, on its device; ``scores`` says how it looks at them."""
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
    return AccuracyResult(right / len(images), len(images), confusion)
