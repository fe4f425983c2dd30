"""One image under one affine factor at several strengths, and the capsule of its class for each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchcaps.data.datasets.affnist import RANGES
from torchcaps.data.datasets.mnist import CANVAS
from torchcaps.data.geometry import rotation, scaling, shearing, warp
from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.models import Model

FACTORS = ("rotation", "shift_x", "shift_y", "scale", "shear_x", "shear_y")
BATCH_SIZE = 250


def sweep_values(factor: str, side: int, steps: int) -> list[float]:
    """Equal steps over the range that gu2021 has for affNIST; shifts are in proportion to the image's side."""
    names = {"scale": "scale_x", "shear_x": "shear", "shear_y": "shear"}
    low, high = RANGES[names.get(factor, factor)]
    if factor.startswith("shift"):
        low, high = low * side / CANVAS, high * side / CANVAS
    return torch.linspace(low, high, steps).tolist()


def affine_sweep(images: Tensor, factor: str, values: Sequence[float]) -> Tensor:
    """Each image at each strength: (B, C, H, W) to (B, S, C, H, W).

    Rotation and shear are in degrees, shifts in pixels to the right and downward, scale is a factor for both axes.
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
    """The capsule of each image's own class: (B, S, C, H, W) and (B,) to (B, S, D)."""
    if labels.ndim != 1:
        raise TorchcapsError(f"images of {labels.shape[1]} labels have no one class capsule: use a set with one label")
    count, steps = images.shape[:2]
    own = labels.repeat_interleave(steps)
    vectors = []
    for part, classes in zip(images.flatten(0, 1).split(BATCH_SIZE), own.split(BATCH_SIZE), strict=True):
        pose = model(part).pose
        if pose is None:
            raise TorchcapsError(f"{type(model).__name__} has no capsules whose vectors could be followed")
        vectors.append(pose[torch.arange(len(part), device=pose.device), classes.to(pose.device)])
    return torch.cat(vectors).view(count, steps, -1)
