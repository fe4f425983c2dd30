r"""Semantic compactness: in how few dimensions of a capsule a change of the image shows.

Gu, Tresp, Hu: Capsule Network is Not More Robust than Convolutional Network, 2021, https://arxiv.org/abs/2103.15459,
section 3.3 and table 5.

.. math:: p_d = \frac{\mathrm{Var}_s(v_{sd})}{\sum_e \mathrm{Var}_s(v_{se})}, \quad
    \mathrm{KL}(p \,\|\, \text{uniform}) = \sum_d p_d \log (D\, p_d)

v_s is the capsule of the true class for the image at strength s of one factor. The score is 0 when all dimensions share
the change, and log D when one alone holds it. The paper gives no ranges: the sweep is over those of its affNIST.

The text averages the score of an image over the set. What its table prints is far smaller than that, and of the size of
another reading: the shares p are averaged over the set first, and the mean is scored. Both are measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torchcaps.analysis.sweeps import FACTORS, affine_sweep, class_vectors, sweep_values
from torchcaps.errors import unknown_name
from torchcaps.models import Model
from torchcaps.progress import Advance

# Table 5, MNIST, in the order of FACTORS.
PAPER = {
    "ConvNet-R": (0.0003, 0.0016, 0.0009, 0.0004, 0.0003, 0.0007),
    "ConvNet-CR": (0.0028, 0.0038, 0.0032, 0.0052, 0.0058, 0.0022),
    "ConvNet-CR-SF": (0.0325, 0.2010, 0.3192, 0.0146, 0.0476, 0.0506),
    "CapsNet": (0.0031, 0.0107, 0.0464, 0.0026, 0.0098, 0.0021),
}


def compactness_score(vectors: Tensor) -> Tensor:
    """The score of each image, (B, S, D) to (B,); not a number where the vectors do not change at all.

    >>> moving = torch.zeros(1, 3, 8); moving[0, :, 5] = torch.tensor([0.0, 1.0, 2.0])  # one dimension alone
    >>> compactness_score(moving)  # log 8
    tensor([2.0794])
    """
    return divergence(variance_shares(vectors)).to(vectors.dtype)


def variance_shares(vectors: Tensor) -> Tensor:
    """Each dimension's share of the variance over the strengths: (B, S, D) to (B, D)."""
    variance = vectors.double().var(1, correction=0)
    return variance / variance.sum(1, keepdim=True)


def divergence(shares: Tensor) -> Tensor:
    """KL to uniform: (..., D) to (...)."""
    found: Tensor = torch.special.xlogy(shares, shares * shares.shape[-1]).sum(-1)
    return found


def measure_compactness(
    model: Model,
    images: Tensor,
    labels: Tensor,
    *,
    factors: Sequence[str] = FACTORS,
    steps: int = 11,
    advance: Advance = lambda amount: None,
) -> dict[str, Any]:
    """The mean score over the images for each of the factors, with the paper's for all six.

    Shapes: images (B, C, H, W), labels (B,). ``advance`` is told of each finished image and factor.
    """
    scores: dict[str, Any] = {}
    size = 0
    for factor in factors:
        if factor not in FACTORS:
            raise unknown_name("factor", factor, FACTORS)
        values = sweep_values(factor, images.shape[3 if factor == "shift_x" else 2], steps)
        vectors = class_vectors(model, affine_sweep(images, factor, values), labels)
        shares, size = variance_shares(vectors), vectors.shape[2]
        shares = shares[shares.isfinite().all(1)]  # without the images that change nothing
        each = divergence(shares)
        scores[factor] = {
            "from": values[0],
            "to": values[-1],
            "score": float(each.mean()) if len(each) else None,
            "score_of_mean_shares": float(divergence(shares.mean(0))) if len(each) else None,
            "deviation": float(each.std()) if len(each) > 1 else None,
            "images": len(each),
        }
        advance(len(images))
    return {"factors": scores, "size": size, "greatest": math.log(size), "paper": PAPER}
