"""Accuracy under the worst rotation and translation of each image.

Engstrom, Tran, Tsipras, Schmidt, Madry: Exploring the Landscape of Spatial Robustness, 2019,
https://arxiv.org/abs/1712.02779.

No pixel is bounded here, so this is not one of the attacks with an epsilon: an image counts as correct only if the
model is right at every point of a grid of rotations and shifts.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import torch

from torchcaps.attacks.base import predict_labels
from torchcaps.attacks.model_wrapper import frozen_eval
from torchcaps.data import TensorImages
from torchcaps.data.base import as_floats
from torchcaps.data.transforms import rotation, warp
from torchcaps.models import Model
from torchcaps.progress import progress_bar

DEGREES = 30.0
SHIFT = 0.1  # of the image's side, about 3 pixels at 28 and 32 pixels
ROTATIONS, SHIFTS = 11, 5  # points of the grid, odd: the middle is the image itself


def measure_spatial(
    model: Model, images: TensorImages, *, rotations: int = ROTATIONS, shifts: int = SHIFTS
) -> dict[str, Any]:
    """Measure the accuracy over the worst of a grid of rotations and shifts.

    Pixels that come from outside the image are black, and shifts are whole pixels.
    """
    device = next(model.parameters()).device
    pixels = as_floats(images.images).to(device)
    labels = images.labels.to(device)
    reach = max(1, round(SHIFT * min(pixels.shape[2:])))
    moves = [float(round(move)) for move in _evenly(reach, shifts)]
    points = list(product(_evenly(DEGREES, rotations), moves, moves))
    points.sort(key=lambda point: -sum(map(abs, point)))  # far ones first: they break most images, which are then done
    robust = torch.ones(len(pixels), dtype=torch.bool, device=device)
    with frozen_eval(model, seed=0), progress_bar("rotations and shifts", len(points)) as advance:
        clean = predict_labels(model, pixels) == labels
        robust &= clean
        for degrees, right, down in points:
            left = robust.nonzero().squeeze(1)
            if not len(left):
                break
            matrix = rotation(torch.full((len(left),), degrees, device=device))
            moved = warp(pixels[left], matrix, torch.tensor([right, down], device=device).expand(len(left), 2))
            robust[left] = predict_labels(model, moved.clamp(0, 1)) == labels[left]
            advance(1)
    return {
        "name": "rotation-translation",
        "about": f"worst of {len(points)} rotations within {DEGREES:.0f} degrees and shifts within {reach} pixels",
        "images": len(pixels),
        "clean_accuracy": clean.float().mean().item(),
        "accuracy": robust.float().mean().item(),
    }


def _evenly(reach: float, count: int) -> list[float]:
    """Return evenly spaced values within reach of 0; a single one is 0."""
    return torch.linspace(-reach, reach, count).tolist() if count > 1 else [0.0]
