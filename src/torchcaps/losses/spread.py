"""Spread loss."""

from __future__ import annotations

from torch import Tensor

from torchcaps.errors import TorchcapsError

FIRST_MARGIN, LAST_MARGIN = 0.2, 0.9


def spread_margin(progress: float) -> float:
    """The margin when this part of the training is done: 0.2 at first, 0.9 at the end, linear between.

    >>> spread_margin(0.5)
    0.55
    """
    return FIRST_MARGIN + (LAST_MARGIN - FIRST_MARGIN) * min(max(progress, 0.0), 1.0)


def spread_loss(scores: Tensor, targets: Tensor, *, margin: float = LAST_MARGIN) -> Tensor:
    r"""The true class ahead of every other class by a margin.

    Hinton, Sabour, Frosst: Matrix Capsules with EM Routing, 2018, equation 3,
    https://openreview.net/forum?id=HJWLfGWRb.

    .. math:: L = \sum_{i \ne t} \max(0, m - (a_t - a_i))^2

    Averaged over the batch. A small margin at first keeps capsules of the lower layers from dying: see
    :func:`spread_margin`.

    Shapes: scores and targets (B, classes), targets 0 or 1 with exactly one 1 per image.

    >>> import torch
    >>> spread_loss(torch.tensor([[0.9, 0.5, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]]), margin=0.5)  # (0.5 - 0.4)^2
    tensor(0.0100)
    """
    if (targets.sum(1) != 1).any():
        raise TorchcapsError(
            "spread loss compares one true class with the others, but these targets have another number of true "
            "classes per image: train with 'margin' or 'bce' where images hold two labels"
        )
    true_score = (scores * targets).sum(1, keepdim=True)
    behind = (margin - (true_score - scores)).clamp_min(0).square()
    return (behind * (1 - targets)).sum(1).mean()
