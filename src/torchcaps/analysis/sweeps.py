r"""Affine sweeps: change an image by one factor at several strengths, and measure how its class capsule responds.

**Semantic compactness**: in how few dimensions of the capsule does the change show?
Gu, Tresp, Hu: Capsule Network is Not More Robust than Convolutional Network, 2021, https://arxiv.org/abs/2103.15459,
section 3.3 and table 5.

.. math:: p_d = \frac{\mathrm{Var}_s(v_{sd})}{\sum_e \mathrm{Var}_s(v_{se})}, \quad
    \mathrm{KL}(p \,\|\, \text{uniform}) = \sum_d p_d \log (D\, p_d)

v_s is the capsule of the true class for the image at strength s of one factor. The score is 0 if all dimensions share
the change equally, and log D if a single one holds all of it. The paper does not state the ranges of the sweeps; those
of its affNIST are used. Its text averages the scores of the images. The values in its table are far smaller, and in the
range of a different reading: average the shares p over the images first, then compute the score. Both are reported.

**Alignment ratio**: do stronger and stronger changes move the capsule along one line?
Choi, Seo, Im, Kang: Attention Routing Between Capsules, 2019, https://arxiv.org/abs/1907.01750, section 4.4, table 3.

.. math:: v_i = u(T_i x) - u(x), \quad \tilde v = \text{first right-singular vector of } V, \quad
    r_i = \frac{|v_i \cdot \tilde v|}{|v_i|}

The sign of the align vector is chosen so that the sum of v_i . v~ is positive. The cosine between the align vectors of
a change and of its opposite is -1 if the capsule moves in opposite directions, and 1 if it moves the same way for both
(figure 4).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchcaps.data.datasets.affnist import RANGES
from torchcaps.data.datasets.mnist import CANVAS
from torchcaps.data.transforms import rotation, scaling, shearing, warp
from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.models import Model
from torchcaps.progress import Advance

FACTORS = ("rotation", "shift_x", "shift_y", "scale", "shear_x", "shear_y")
BATCH_SIZE = 250
# gu2021, table 5, MNIST, in the order of FACTORS.
COMPACTNESS_PAPER = {
    "ConvNet-R": (0.0003, 0.0016, 0.0009, 0.0004, 0.0003, 0.0007),
    "ConvNet-CR": (0.0028, 0.0038, 0.0032, 0.0052, 0.0058, 0.0022),
    "ConvNet-CR-SF": (0.0325, 0.2010, 0.3192, 0.0146, 0.0476, 0.0506),
    "CapsNet": (0.0031, 0.0107, 0.0464, 0.0026, 0.0098, 0.0021),
}
STEPS = {"rotation": (5.0, 10.0, 15.0, 20.0, 25.0), "shift_x": (1.0, 2.0, 3.0, 4.0, 5.0)}
STEPS["shift_y"] = STEPS["shift_x"]
# choi2019, table 3: means over 10,000 test images of MNIST, and the text's value for five random vectors in 32-D.
ALIGNMENT_PAPER: dict[str, dict[str, Any]] = {
    "ratio": {
        "rotation": {"+": 0.88, "-": 0.83},
        "shift_x": {"+": 0.86, "-": 0.83},
        "shift_y": {"+": 0.84, "-": 0.84},
    },
    "random": {"mean": 0.311, "deviation": 0.262, "size": 32},
}
COSINE_BINS = 20


def sweep_values(factor: str, side: int, steps: int) -> list[float]:
    """Equally spaced strengths over gu2021's affNIST range; shifts are scaled to the image's side."""
    names = {"scale": "scale_x", "shear_x": "shear", "shear_y": "shear"}
    low, high = RANGES[names.get(factor, factor)]
    if factor.startswith("shift"):
        low, high = low * side / CANVAS, high * side / CANVAS
    return torch.linspace(low, high, steps).tolist()


def affine_sweep(images: Tensor, factor: str, values: Sequence[float]) -> Tensor:
    """Transform each image with each strength: (B, C, H, W) to (B, S, C, H, W).

    Rotation and shear are in degrees, shifts in pixels to the right or downward, scale is a factor for both axes.
    """
    if factor not in FACTORS:
        raise unknown_name("factor", factor, FACTORS)
    amount = torch.tensor(values, device=images.device).repeat(len(images))  # (B*S,)
    none, shift = torch.zeros_like(amount), None
    matrix = torch.eye(2, device=images.device).expand(len(amount), 2, 2)
    if factor == "rotation":
        matrix = rotation(amount)
    elif factor == "scale":
        matrix = scaling(amount, amount)
    elif factor == "shear_x":
        matrix = shearing(amount, none)
    elif factor == "shear_y":
        matrix = shearing(none, amount)
    else:
        shift = torch.stack([amount, none] if factor == "shift_x" else [none, amount], dim=1)
    changed = warp(images.repeat_interleave(len(values), 0), matrix, shift)
    return changed.view(len(images), len(values), *changed.shape[1:])


@torch.no_grad()
def class_vectors(model: Model, images: Tensor, labels: Tensor) -> Tensor:
    """Return the capsule of the true class for each image: (B, S, C, H, W) and (B,) to (B, S, D)."""
    if labels.ndim != 1:
        raise TorchcapsError(f"expected one label per image, got {labels.shape[1]}: use a dataset with one label")
    count, steps = images.shape[:2]
    own = labels.repeat_interleave(steps)
    vectors = []
    for part, classes in zip(images.flatten(0, 1).split(BATCH_SIZE), own.split(BATCH_SIZE), strict=True):
        pose = model(part).pose
        if pose is None:
            raise TorchcapsError(f"{type(model).__name__} has no class capsules: choose a capsule model")
        vectors.append(pose[torch.arange(len(part), device=pose.device), classes.to(pose.device)])
    return torch.cat(vectors).view(count, steps, -1)


def compactness_score(vectors: Tensor) -> Tensor:
    """Return the compactness of each image: (B, S, D) to (B,). NaN where the vectors do not change at all.

    >>> moving = torch.zeros(1, 3, 8); moving[0, :, 5] = torch.tensor([0.0, 1.0, 2.0])  # one dimension alone
    >>> compactness_score(moving)  # log 8
    tensor([2.0794])
    """
    return divergence(variance_shares(vectors)).to(vectors.dtype)


def variance_shares(vectors: Tensor) -> Tensor:
    """Return each dimension's share of the variance over the strengths: (B, S, D) to (B, D)."""
    variance = vectors.double().var(1, correction=0)
    return variance / variance.sum(1, keepdim=True)


def divergence(shares: Tensor) -> Tensor:
    """Return the KL divergence to the uniform distribution: (..., D) to (...)."""
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
    """Measure the mean compactness over the images for each factor. The result includes the paper's values.

    ``advance`` is called with the number of images after each factor.

    Shapes: images (B, C, H, W), labels (B,).
    """
    scores: dict[str, Any] = {}
    size = 0
    for factor in factors:
        if factor not in FACTORS:
            raise unknown_name("factor", factor, FACTORS)
        values = sweep_values(factor, images.shape[3 if factor == "shift_x" else 2], steps)
        vectors = class_vectors(model, affine_sweep(images, factor, values), labels)
        shares, size = variance_shares(vectors), vectors.shape[2]
        shares = shares[shares.isfinite().all(1)]  # without images whose capsule does not change
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
    return {"factors": scores, "size": size, "greatest": math.log(size), "paper": COMPACTNESS_PAPER}


def align_vectors(differences: Tensor) -> tuple[Tensor, Tensor]:
    """Return align vectors (B, D) and ratios (B, S) of differences (B, S, D). The ratio of a zero difference is NaN.

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
    """Measure the ratios of ``count`` standard normal vectors in ``size`` dimensions, as a baseline."""
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
    """Measure the ratios for each factor and sign, the cosines of + against -, and the baseline of random vectors.

    ``advance`` is called with the number of images after each factor and sign.

    Shapes: images (B, C, H, W), labels (B,).
    """
    rest = class_vectors(model, images.unsqueeze(1), labels)  # (B, 1, D)
    ratios: dict[str, Any] = {}
    cosines: dict[str, Any] = {}
    for factor in factors:
        if factor not in STEPS:
            raise unknown_name("factor", factor, STEPS)
        vectors, ratios[factor] = {}, {}
        for sign, values in (("+", STEPS[factor]), ("-", tuple(-value for value in STEPS[factor]))):
            moved = class_vectors(model, affine_sweep(images, factor, values), labels)
            vectors[sign], ratio = align_vectors(moved - rest)
            ratios[factor][sign] = _summarize_ratios(ratio, labels)
            advance(len(images))
        cosine = (vectors["+"] * vectors["-"]).sum(1).clamp(-1, 1)
        cosines[factor] = {
            "counts": torch.histc(cosine.cpu(), COSINE_BINS, -1, 1).int().tolist(),
            "mean": float(cosine.mean()),
            "same_side": float((cosine > 0).float().mean()),
        }
    reference = {
        "own_size": random_reference(rest.shape[2]),
        "paper_size": random_reference(ALIGNMENT_PAPER["random"]["size"]),
    }
    return {"ratio": ratios, "cosine": cosines, "random": reference, "images": len(images), "paper": ALIGNMENT_PAPER}


def _summarize_ratios(ratio: Tensor, labels: Tensor) -> dict[str, Any]:
    """Mean and standard deviation over all images and strengths, and the mean of each class."""
    finite = ratio.isfinite()
    each = {int(label): ratio[labels == label] for label in labels.unique()}
    means = {
        label: float(values[values.isfinite()].mean()) for label, values in each.items() if values.isfinite().any()
    }
    return {
        "mean": float(ratio[finite].mean()) if finite.any() else None,
        "deviation": float(ratio[finite].std()) if finite.sum() > 1 else None,
        "by_class": means,
    }
