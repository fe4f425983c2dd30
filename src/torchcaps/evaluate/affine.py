"""Affine change: digits turned, sheared, scaled and moved, which the model was not trained for.

gu2021, section 3.1; choi2019, section 4.2: trained on MNIST placed on 40x40, tested on affNIST. A model for other
images is tested on its own test images changed in place, at their own size. That is another test: what is moved over
the border is lost, and no figure of a paper is comparable. The result says which of the two it is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchcaps.analysis.sweeps import strengths, sweep
from torchcaps.attacks.base import predict
from torchcaps.attacks.sight import steady
from torchcaps.data import ImageSet, MemoryImages, load_dataset
from torchcaps.data.affnist import change_digits
from torchcaps.data.base import as_floats, pieces
from torchcaps.evaluate.canvas import first_images
from torchcaps.models import Model
from torchcaps.progress import progress_bar

FACTORS = ("rotation", "shear_x", "scale", "shift_x", "shift_y")  # those of affNIST; scale is one for both axes
STEPS = 9  # an odd number: the middle one is no change
# By what a model was trained on: the set that it is tested on. All else is changed in place.
PLACED = {"mnist-40": "affnist", "affnist": "affnist", "affnist-official": "affnist-official"}
AT_ONCE = 50


def affine_sets(model: Model, data: str, images_used: int | None) -> tuple[MemoryImages, ImageSet, str]:
    """What a model trained on this dataset is tested on: upright images, changed ones, and which these are."""
    if data in PLACED:
        upright = first_images(model, load_dataset("mnist", "test"), images_used)
        name = PLACED[data]
        kind = "generated after gu2021" if name == "affnist" else "the original file"
        return upright, first_images(model, load_dataset(name, "test"), images_used), f"{name} ({kind}), 40x40"
    upright = first_images(model, load_dataset(data, "test"), images_used)
    side = model.image_shape[1]
    about = f"{side}x{side} test images of {data} changed in place, by affNIST's ranges with shifts in proportion"
    return upright, change_digits(upright, seed=0, side=side), about


def measure_affine(
    model: Model, upright: MemoryImages, changed: ImageSet, *, about: str = "", steps: int = STEPS
) -> dict[str, Any]:
    """Accuracy on changed images, and on upright ones under one factor at a time.

    ``curves`` has, for each factor, its strengths (degrees, pixels, or the scale) and the accuracy at each.
    """
    everything = changed.batch(torch.arange(len(changed)))
    with steady(model, seed=0):
        accuracy = _right(model, everything.images, everything.labels) / len(changed)
        straight = _right(model, as_floats(upright.images), upright.labels) / len(upright)
        curves = affine_curves(model, upright, steps=steps)
    return {
        "about": about,
        "images": len(changed),
        "upright_accuracy": straight,
        "accuracy": accuracy,
        "curves": curves,
    }


def affine_curves(model: Model, upright: MemoryImages, *, steps: int = STEPS) -> dict[str, dict[str, list[float]]]:
    """Accuracy against the strength of each factor alone, over affNIST's range of it."""
    curves = {}
    with progress_bar("affine change", len(FACTORS) * len(upright)) as advance:
        for factor in FACTORS:
            values = [round(each, 4) for each in strengths(factor, model.image_shape[1], steps)]
            right = [0] * steps
            for part in pieces(len(upright), AT_ONCE):
                moved = sweep(as_floats(upright.images[part]), factor, values)  # (B, S, C, H, W)
                for step in range(steps):
                    right[step] += _right(model, moved[:, step], upright.labels[part])
                advance(len(moved))
            curves[factor] = {"strength": values, "accuracy": [count / len(upright) for count in right]}
    return curves


def _right(model: Model, images: Tensor, labels: Tensor) -> int:
    device = next(model.parameters()).device
    return int((predict(model, images.to(device)).cpu() == labels).sum())
