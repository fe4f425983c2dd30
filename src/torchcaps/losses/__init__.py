"""Losses: from a model's output and the labels to one number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.losses.margin import margin_loss
from torchcaps.losses.reconstruction import reconstruction_loss
from torchcaps.registry import Registry

__all__ = ["LossRecord", "losses", "margin_loss", "one_hot", "reconstruction_loss"]


@dataclass(frozen=True)
class LossRecord:
    """A classification loss by name: a function of scores, logits and 0/1 targets, each (B, classes)."""

    name: str
    description: str
    compute: Callable[[Tensor, Tensor, Tensor], Tensor]


losses: Registry[LossRecord] = Registry("loss")
losses.add(LossRecord("margin", "lengths above 0.9 or below 0.1", lambda scores, _, targets: margin_loss(scores, targets)))
losses.add(
    LossRecord("cross-entropy", "softmax over the logits", lambda _, logits, targets: F.cross_entropy(logits, targets))
)


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """Labels (B,) or (B, L) as 0/1 targets (B, classes).

    >>> one_hot(torch.tensor([[0, 2]]), 4)
    tensor([[1., 0., 1., 0.]])
    """
    columns = labels.reshape(len(labels), -1)
    return torch.zeros(len(labels), classes, device=labels.device).scatter(1, columns, 1.0)
