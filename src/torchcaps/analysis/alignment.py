r"""Alignment ratio: whether stronger and stronger changes of an image move its capsule along one line.

Choi, Seo, Im, Kang: Attention Routing Between Capsules, 2019, https://arxiv.org/abs/1907.01750, section 4.3, table 3.

.. math:: v_i = u(T_i x) - u(x), \quad \tilde v = \text{first right-singular vector of } V, \quad
    r_i = \frac{|v_i \cdot \tilde v|}{|v_i|}

The vector points to the side on which its changes lie (the sum of v_i . v~ is positive). Between the vectors of a
change and of its opposite, a cosine of -1 says that the capsule tells them apart along one line, and 1 that it moves
the same way for both (figure 4).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from torchcaps.analysis.sweeps import affine_sweep, class_vectors
from torchcaps.errors import unknown_name
from torchcaps.models import Model
from torchcaps.progress import Advance

STEPS = {"rotation": (5.0, 10.0, 15.0, 20.0, 25.0), "shift_x": (1.0, 2.0, 3.0, 4.0, 5.0)}
STEPS["shift_y"] = STEPS["shift_x"]
# Table 3: averages over 10,000 test images of MNIST, and what the text prints for five random vectors in 32-D.
PAPER: dict[str, dict[str, Any]] = {
    "ratio": {
        "rotation": {"+": 0.88, "-": 0.83},
        "shift_x": {"+": 0.86, "-": 0.83},
        "shift_y": {"+": 0.84, "-": 0.84},
    },
    "random": {"mean": 0.311, "deviation": 0.262, "size": 32},
}
BINS = 20


def align_vectors(differences: Tensor) -> tuple[Tensor, Tensor]:
    """Align vectors and ratios: (B, S, D) to (B, D) and (B, S); a difference of zero has no ratio (not a number).

    >>> line = torch.tensor([[[3.0, 4.0], [6.0, 8.0], [-3.0, -4.0]]])
    >>> align_vectors(line)
    (tensor([[0.6000, 0.8000]]), tensor([[1., 1., 1.]]))
    """
    vectors = differences.double()
    first = torch.linalg.svd(vectors, full_matrices=False).Vh[:, 0]  # (B, D)
    along = torch.einsum("bsd,bd->bs", vectors, first)
    first = first * torch.where(along.sum(1) < 0, -1.0, 1.0).unsqueeze(1)
    ratio = along.abs() / vectors.norm(dim=2)
    return first.to(differences.dtype), ratio.to(differences.dtype)


def random_reference(size: int, *, count: int = 5, trials: int = 1000, seed: int = 0) -> dict[str, float]:
    """The ratios of ``count`` standard-normal vectors in ``size`` dimensions: what no alignment at all looks like."""
    generator = torch.Generator().manual_seed(seed)
    _, ratio = align_vectors(torch.randn(trials, count, size, generator=generator))
    return {"mean": float(ratio.mean()), "deviation": float(ratio.std()), "size": size}


def measure_alignment(
    model: Model,
    images: Tensor,
    labels: Tensor,
    *,
    factors: Iterable[str] = tuple(STEPS),
    advance: Advance = lambda amount: None,
) -> dict[str, Any]:
    """Ratios for each transformation and sign, the cosines of + against -, and the reference of random vectors.

    Shapes: images (B, C, H, W), labels (B,). ``advance`` is told of each finished image and transformation.
    """
    rest = class_vectors(model, images.unsqueeze(1), labels)  # (B, 1, D)
    ratios: dict[str, Any] = {}
    cosines: dict[str, Any] = {}
    for factor in factors:
        if factor not in STEPS:
            raise unknown_name("factor", factor, STEPS)
        vectors, ratios[factor] = {}, {}
        for sign, values in (("+", STEPS[factor]), ("-", tuple(-value for value in STEPS[factor]))):
            vectors[sign], ratio = align_vectors(
                class_vectors(model, affine_sweep(images, factor, values), labels) - rest
            )
            ratios[factor][sign] = _summary(ratio, labels)
            advance(len(images))
        cosine = (vectors["+"] * vectors["-"]).sum(1).clamp(-1, 1)
        counts = torch.histc(cosine.cpu(), BINS, -1, 1)
        cosines[factor] = {
            "counts": counts.int().tolist(),
            "mean": float(cosine.mean()),
            "same_side": float((cosine > 0).float().mean()),
        }
    size = rest.shape[2]
    reference = {"own_size": random_reference(size), "paper_size": random_reference(PAPER["random"]["size"])}
    return {"ratio": ratios, "cosine": cosines, "random": reference, "images": len(images), "paper": PAPER}


def _summary(ratio: Tensor, labels: Tensor) -> dict[str, Any]:
    """Mean and deviation over all images and strengths, and the mean of every class."""
    present = ratio.isfinite()
    each = {int(label): ratio[labels == label] for label in labels.unique()}
    means = {
        label: float(values[values.isfinite()].mean()) for label, values in each.items() if values.isfinite().any()
    }
    return {
        "mean": float(ratio[present].mean()) if present.any() else None,
        "deviation": float(ratio[present].std()) if present.sum() > 1 else None,
        "by_class": means,
    }
