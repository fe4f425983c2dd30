"""Losses: from a model's output and the labels to one number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.losses.margin import margin_loss
from torchcaps.losses.reconstruction import reconstruction_loss
from torchcaps.losses.spread import spread_loss, spread_margin
from torchcaps.registry import Registry

__all__ = ["LossRecord", "losses", "margin_loss", "one_hot", "reconstruction_loss", "spread_loss", "spread_margin"]


class Compute(Protocol):
    """What a loss record computes."""

    def __call__(self, scores: Tensor, logits: Tensor, targets: Tensor, progress: float) -> Tensor: ...


@dataclass(frozen=True)
class LossRecord:
    """A classification loss by name.

    ``compute`` takes scores, logits and 0/1 targets, each (B, classes), and ``progress``: how much of the training
    is done, from 0 to 1, for losses that grow stricter on the way. ``single_label``: makes no sense for images with
    two labels.
    """

    name: str
    description: str
    compute: Compute
    single_label: bool = False


def _margin(scores: Tensor, logits: Tensor, targets: Tensor, progress: float) -> Tensor:
    return margin_loss(scores, targets)


def _spread(scores: Tensor, logits: Tensor, targets: Tensor, progress: float) -> Tensor:
    return spread_loss(scores, targets, margin=spread_margin(progress))


def _cross_entropy(scores: Tensor, logits: Tensor, targets: Tensor, progress: float) -> Tensor:
    return F.cross_entropy(logits, targets)


def _binary_cross_entropy(scores: Tensor, logits: Tensor, targets: Tensor, progress: float) -> Tensor:
    # Summed over classes like the margin loss, so that the weight of a reconstruction means the same beside both.
    return F.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(1).mean()


losses: Registry[LossRecord] = Registry("loss")
losses.add(LossRecord("margin", "lengths above 0.9 or below 0.1", _margin))
losses.add(LossRecord("spread", "true class ahead of every other by a margin, 0.2 to 0.9", _spread, single_label=True))
losses.add(LossRecord("cross-entropy", "softmax over the logits", _cross_entropy, single_label=True))
losses.add(LossRecord("bce", "a sigmoid for each class: binary cross-entropy", _binary_cross_entropy))


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """Labels (B,) or (B, L) as 0/1 targets (B, classes).

    >>> one_hot(torch.tensor([[0, 2]]), 4)
    tensor([[1., 0., 1., 0.]])
    """
    columns = labels.reshape(len(labels), labels.shape[1:].numel())  # (B, L), also for B = 0
    return torch.zeros(len(labels), classes, device=labels.device).scatter(1, columns, 1.0)
