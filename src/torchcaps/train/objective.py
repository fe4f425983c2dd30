"""The training objective, classification plus reconstruction loss, and the accuracy of a model on a set of images."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.data import ImageSet, center_crop
from torchcaps.losses import losses, one_hot, reconstruction_loss
from torchcaps.models import Model, Output
from torchcaps.progress import progress_bar
from torchcaps.train.adversarial import parse_adversarial
from torchcaps.train.checkpoint import full_tensor
from torchcaps.train.config import RunConfig

BATCH = 250  # images evaluated at once


class Objective(nn.Module):
    """A model with its loss, as one module, so that DDP or FSDP wraps the pass through the decoder too."""

    def __init__(self, model: Model, config: RunConfig, class_weights: Tensor | None = None) -> None:
        super().__init__()
        self.class_weights = class_weights
        self.model = model
        self.loss = losses.get(config.loss)
        self.over_pixels, self.reconstruction_weight = config.reconstruction, config.reconstruction_weight
        self.adversarial = None if config.adversarial is None else parse_adversarial(config.adversarial)

    def forward(
        self,
        images: Tensor,
        labels: Tensor,
        targets: Tensor | None,
        progress: float,
        jitter: Tensor | None = None,
    ) -> tuple[Tensor, Output]:
        """Compute the loss of a batch; return it with the output of the model.

        Args:
            images: (B, C, H, W).
            labels: (B,), or (B, L) with L labels per image.
            targets: (B, L, C, H, W), the image to reconstruct for each label; None: the input image. A decoder that
                is not conditional on a label always reconstructs the input image.
            progress: fraction of the training steps that are done; some losses depend on it.
            jitter: (B, 2), contrast and brightness that the model applies after its preprocessing.
        """
        adversarial, seen = self.adversarial, images
        moved = None if adversarial is None else adversarial.perturb(self.model, images, labels, jitter)
        if adversarial is not None and adversarial.name == "pgd" and moved is not None:
            seen = moved
        # No check for NaN here: the training loop checks the loss, keeps the last good state and stops all processes.
        output = self.model(seen, check_finite=False, jitter=jitter)
        present = one_hot(labels, self.model.classes)
        total = self._classification_loss(output, present, labels, progress)
        if adversarial is not None and adversarial.name == "trades":
            worst = self.model(moved, check_finite=False, jitter=jitter).logits
            total = total + adversarial.beta * adversarial.divergence(output.logits, worst)
        if self.reconstruction_weight and self.model.decoder is not None:
            wanted = targets if targets is not None and self.model.decoder.conditional else images.unsqueeze(1)
            rows, columns = self.model.decoder.drawn_shape[1:]
            if wanted.shape[3:] != (rows, columns):  # compared at the size that is drawn, which is several times faster
                wanted = F.adaptive_avg_pool2d(wanted.flatten(0, 1), (rows, columns)).unflatten(0, wanted.shape[:2])
            total = total + self.reconstruction_weight * self._reconstruction_error(output, labels, wanted)
        return total, output

    def _classification_loss(self, output: Output, present: Tensor, labels: Tensor, progress: float) -> Tensor:
        """Compute the loss; with class weights, the weighted mean of the losses of each class in the batch."""
        if self.class_weights is None:
            return self.loss.compute(output.scores, output.logits, present, progress)
        total = output.scores.new_zeros(())
        for label in labels.unique():
            own = labels == label
            loss = self.loss.compute(output.scores[own], output.logits[own], present[own], progress)
            total = total + self.class_weights[label].to(loss) * own.sum() / len(labels) * loss
        return total

    def _reconstruction_error(self, output: Output, labels: Tensor, wanted: Tensor) -> Tensor:
        columns = labels.reshape(len(labels), labels.shape[1:].numel())  # (B, L)
        errors = [
            reconstruction_loss(
                self.model.reconstruct(output, columns[:, column], enlarge=False),
                wanted[:, column],
                over_pixels=self.over_pixels,
            )
            for column in range(wanted.shape[1])
        ]
        return torch.stack(errors).sum()


def correct(scores: Tensor, labels: Tensor) -> Tensor:
    """Return which images are classified correctly, (B,): the L highest scores must be those of all L labels."""
    wanted = labels.reshape(len(labels), labels.shape[1:].numel())
    highest = scores.topk(wanted.shape[1], dim=1).indices
    return (highest.sort(1).values == wanted.sort(1).values).all(1)


@dataclass(frozen=True)
class AccuracyResult:
    """Accuracy and, for one label per image, the confusion matrix: true classes in rows, predicted ones in columns."""

    accuracy: float
    images: int
    confusion: Tensor


def crop_to_model(model: Model, images: Tensor) -> Tensor:
    """Crop the center of images that are larger than the input of a model."""
    size = model.image_shape[1:]
    return center_crop(images, size) if images.shape[2] > size[0] or images.shape[3] > size[1] else images


def center_scores(model: Model, images: Tensor) -> Tensor:
    """Return the scores (B, classes) of center-cropped images."""
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
    """Evaluate a model on all images, on its device; ``scores`` computes the scores of a batch."""
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


def nonfinite_reason(loss: float, model: nn.Module) -> str | None:
    """Say whether the loss or the gradient is not finite; None if both are finite."""
    if not math.isfinite(loss):
        return f"the loss became {loss}"
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = full_tensor(nn.utils.get_total_norm(gradients))
    return None if torch.isfinite(norm) else f"the gradient became {norm.item()}"
