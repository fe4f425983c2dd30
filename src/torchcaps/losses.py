"""Classification and reconstruction losses, and a registry of their records."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.registry import Registry

__all__ = [
    "LossRecord",
    "losses",
    "margin_loss",
    "one_hot",
    "reconstruction_loss",
    "routing_free_energy",
    "spread_loss",
    "spread_margin",
]


class LossFunction(Protocol):
    """Signature of a registered loss."""

    def __call__(self, scores: Tensor, logits: Tensor, targets: Tensor, progress: float) -> Tensor: ...


@dataclass(frozen=True)
class LossRecord:
    """A classification loss by name.

    ``compute`` takes scores, logits and 0/1 targets, each (B, classes), and ``progress``, the completed fraction of the
    training, for losses with a schedule. ``single_label`` losses do not support images with two labels.
    """

    name: str
    description: str
    compute: LossFunction
    single_label: bool = False


def _margin(scores: Tensor, logits: Tensor, targets: Tensor, progress: float, upper: float = 0.9) -> Tensor:
    return margin_loss(scores, targets, upper=upper)


def _spread(scores: Tensor, logits: Tensor, targets: Tensor, progress: float) -> Tensor:
    return spread_loss(scores, targets, margin=spread_margin(progress))


def _cross_entropy(scores: Tensor, logits: Tensor, targets: Tensor, progress: float) -> Tensor:
    return F.cross_entropy(logits, targets)


def _binary_cross_entropy(scores: Tensor, logits: Tensor, targets: Tensor, progress: float) -> Tensor:
    # Summed over classes like the margin loss, so that the same reconstruction weight fits both.
    return F.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(1).mean()


losses: Registry[LossRecord] = Registry("loss")
"""All losses by name."""
losses.add(LossRecord("margin", "lengths above 0.9 or below 0.1", _margin))
# chen2019's released configuration for MNIST and for CIFAR-10.
losses.add(LossRecord("margin-0.7", "lengths above 0.7 or below 0.1", partial(_margin, upper=0.7)))
losses.add(LossRecord("margin-0.6", "lengths above 0.6 or below 0.1", partial(_margin, upper=0.6)))
losses.add(LossRecord("spread", "true class ahead of every other by a margin, 0.2 to 0.9", _spread, single_label=True))
losses.add(LossRecord("cross-entropy", "softmax over the logits", _cross_entropy, single_label=True))
losses.add(LossRecord("bce", "a sigmoid for each class: binary cross-entropy", _binary_cross_entropy))


def one_hot(labels: Tensor, classes: int) -> Tensor:
    """Convert labels (B,) or (B, L) to 0/1 targets (B, classes).

    >>> one_hot(torch.tensor([[0, 2]]), 4)
    tensor([[1., 0., 1., 0.]])
    """
    columns = labels.reshape(len(labels), labels.shape[1:].numel())  # (B, L), also for B = 0
    return torch.zeros(len(labels), classes, device=labels.device).scatter(1, columns, 1.0)


def margin_loss(
    scores: Tensor, targets: Tensor, *, upper: float = 0.9, lower: float = 0.1, absent_weight: float = 0.5
) -> Tensor:
    r"""Margin loss: lengths above 0.9 for present classes, below 0.1 for absent ones (sabour2017, equation 4).

    .. math:: L_k = T_k \max(0, m^+ - |v_k|)^2 + \lambda (1 - T_k) \max(0, |v_k| - m^-)^2

    Summed over classes, averaged over the batch. Shapes: scores and targets (B, classes), targets 0 or 1.
    """
    present = targets * (upper - scores).clamp_min(0).square()
    absent = absent_weight * (1 - targets) * (scores - lower).clamp_min(0).square()
    return (present + absent).sum(1).mean()


FIRST_MARGIN, LAST_MARGIN = 0.2, 0.9


def spread_margin(progress: float) -> float:
    """Margin of the spread loss: linear from 0.2 to 0.9 over the training.

    >>> spread_margin(0.5)
    0.55
    """
    return FIRST_MARGIN + (LAST_MARGIN - FIRST_MARGIN) * min(max(progress, 0.0), 1.0)


def spread_loss(scores: Tensor, targets: Tensor, *, margin: float = LAST_MARGIN) -> Tensor:
    r"""Spread loss: the true class must exceed every other class by a margin.

    Hinton, Sabour, Frosst: Matrix Capsules with EM Routing, 2018, equation 3,
    https://openreview.net/forum?id=HJWLfGWRb.

    .. math:: L = \sum_{i \ne t} \max(0, m - (a_t - a_i))^2

    Averaged over the batch. A small initial margin prevents dead capsules in the lower layers, see
    :func:`spread_margin`.

    Shapes: scores and targets (B, classes), targets 0 or 1 with exactly one 1 per image.

    >>> import torch
    >>> spread_loss(torch.tensor([[0.9, 0.5, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]]), margin=0.5)  # (0.5 - 0.4)^2
    tensor(0.0100)
    """
    if (targets.sum(1) != 1).any():
        raise TorchcapsError(
            "spread loss needs exactly one true class per image, got none or several: "
            "use 'margin' or 'bce' if images have two labels"
        )
    true_score = (scores * targets).sum(1, keepdim=True)
    behind = (margin - (true_score - scores)).clamp_min(0).square()
    return (behind * (1 - targets)).sum(1).mean()


def routing_free_energy(
    votes: Tensor,
    child_activation: Tensor,
    assignment: Tensor,
    mean: Tensor,
    variance: Tensor,
    activation: Tensor,
    beta_u: Tensor,
    beta_a: Tensor,
) -> Tensor:
    r"""Free energy of EM routing, the objective of its steps (hinton2018, equation 4).

    .. math::
        \sum_j \Big( -a_j \beta_a + a_j \ln a_j + (1 - a_j) \ln (1 - a_j)
        - \sum_{i,h} r_{ij} \ln \mathcal N(V_{ij}^h; \mu_j^h, (\sigma_j^h)^2)
        + \beta_u \sum_i r_{ij} + \sum_i a_i R_{ij} \ln R_{ij} \Big), \quad r_{ij} = a_i R_{ij}

    It measures how far the routing of an image has converged, and is not a loss for training: minimized over the
    transformation matrices, all votes would become equal (appendix A.2). As printed, the energy of the votes is not
    scaled by the parent's activation, so the steps that decrease it are those of mean and variance, and assignments in
    proportion to the densities alone.

    Args:
        votes: V, (..., I, J, D)
        child_activation: a_i, (..., I)
        assignment: R, (..., I, J)
        mean, variance: of the parents, (..., J, D)
        activation: a_j of the parents, (..., J)
        beta_u, beta_a: (J,)

    Returns the energy of each image, (...).
    """
    weights = child_activation.unsqueeze(-1) * assignment  # r (..., I, J)
    spread = variance.unsqueeze(-3)  # (..., 1, J, D)
    distance = (votes - mean.unsqueeze(-3)).square() / (2 * spread)
    surprise = (distance + 0.5 * (2 * math.pi * spread).log()).sum(-1)  # -ln of the density, (..., I, J)
    entropy = torch.xlogy(activation, activation) + torch.xlogy(1 - activation, 1 - activation)  # negative, (..., J)
    assigned = weights * (surprise + beta_u) + child_activation.unsqueeze(-1) * torch.xlogy(assignment, assignment)
    return (entropy - activation * beta_a + assigned.sum(-2)).sum(-1)


def reconstruction_loss(drawn: Tensor, images: Tensor, *, over_pixels: str = "sum") -> Tensor:
    """Squared error of reconstructed images, averaged over the batch.

    Args:
        over_pixels: ``sum`` (sabour2017, whose weight is 0.0005) or ``mean`` (choi2019, whose weight is 0.3). At
            28x28 a weight of 0.0005 on the sum is 0.392 on the mean.
    """
    if over_pixels not in ("sum", "mean"):
        raise unknown_name("reconstruction", over_pixels, ("sum", "mean"))
    errors = (drawn - images).square().flatten(1)  # (B, pixels)
    return (errors.sum(1) if over_pixels == "sum" else errors.mean(1)).mean()
