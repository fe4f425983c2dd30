"""Margin loss."""

from __future__ import annotations

from torch import Tensor


def margin_loss(
    scores: Tensor, targets: Tensor, *, upper: float = 0.9, lower: float = 0.1, absent_weight: float = 0.5
) -> Tensor:
    r"""Lengths above 0.9 for what is there, below 0.1 for what is not (sabour2017, equation 4).

    .. math:: L_k = T_k \max(0, m^+ - |v_k|)^2 + \lambda (1 - T_k) \max(0, |v_k| - m^-)^2

    Summed over classes, averaged over the batch. Shapes: scores and targets (B, classes), targets 0 or 1.
    """
    present = targets * (upper - scores).clamp_min(0).square()
    absent = absent_weight * (1 - targets) * (scores - lower).clamp_min(0).square()
    return (present + absent).sum(1).mean()
