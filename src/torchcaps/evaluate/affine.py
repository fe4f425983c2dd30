"""Affine change: digits turned, sheared, scaled and moved, which the model was not trained for.

gu2021, section 3.1; choi2019, section 4.2: trained on MNIST placed on 40x40, tested on affNIST. A model for other
images is tested on its own test images changed in place, at their own size. That is another test: what is moved over
the border is lost, and no published figure is comparable. The result says which of the two it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from torchcaps.analysis.sweeps import affine_sweep, sweep_values
from torchcaps.attacks.base import predict_labels
from torchcaps.attacks.model_wrapper import frozen_eval
from torchcaps.data import TensorImages, load_dataset
from torchcaps.data.base import as_floats, chunks
from torchcaps.data.datasets.affnist import change_digits
from torchcaps.evaluate.clean import first_images
from torchcaps.models import Model
from torchcaps.progress import progress_bar

FACTORS = ("rotation", "shear_x", "scale", "shift_x", "shift_y")  # those of affNIST; scale is one for both axes
STEPS = 9  # an odd number: the middle one is no change
# By what a model was trained on: the set that it is tested on. All else is changed in place.
PLACED = {"mnist-40": "affnist", "affnist": "affnist", "affnist-official": "affnist-official"}
AT_ONCE = 50


@dataclass(frozen=True)
class AffineSets:
    """Upright images and changed ones, with a name for the latter and the words that go with it."""

    name: str
    about: str
    upright: TensorImages
    changed: TensorImages


def affine_sets(model: Model, data: str, images_used: int | None) -> AffineSets:
    """What a model trained on this dataset is tested on."""
    if data in PLACED:
        upright, changed = (
            first_images(model, load_dataset(name, "test"), images_used) for name in ("mnist", PLACED[data])
        )
        kind = "generated after gu2021" if PLACED[data] == "affnist" else "the original file"
        return AffineSets(PLACED[data], f"digits under affine change on 40x40, {kind}", upright, changed)
    upright = first_images(model, load_dataset(data, "test"), images_used)
    side = model.image_shape[1]
    about = f"{side}x{side} test images of {data} changed in place, by affNIST's ranges with shifts in proportion"
    return AffineSets("affine in place", about, upright, change_digits(upright, seed=0, side=side))


def measure_affine(model: Model, sets: AffineSets, *, steps: int = STEPS) -> dict[str, Any]:
    """Accuracy on changed images, and on upright ones under one factor at a time.

    ``curves`` has, for each factor, its strengths (degrees, pixels, or the scale) and the accuracy at each.
    """
    upright, changed = sets.upright, sets.changed
    with frozen_eval(model, seed=0):
        accuracy, straight = (
            _right(model, as_floats(each.images), each.labels) / len(each) for each in (changed, upright)
        )
        curves = affine_curves(model, upright, steps=steps)
    return {
        "name": sets.name,
        "about": sets.about,
        "images": len(changed),
        "upright_accuracy": straight,
        "accuracy": accuracy,
        "curves": curves,
    }


def affine_curves(model: Model, upright: TensorImages, *, steps: int = STEPS) -> dict[str, dict[str, list[float]]]:
    """Accuracy against the strength of each factor alone, over affNIST's range of it."""
    curves = {}
    with progress_bar("affine change", len(FACTORS) * len(upright)) as advance:
        for factor in FACTORS:
            values = [round(each, 4) for each in sweep_values(factor, model.image_shape[1], steps)]
            right = [0] * steps
            for part in chunks(len(upright), AT_ONCE):
                moved = affine_sweep(as_floats(upright.images[part]), factor, values)  # (B, S, C, H, W)
                for step in range(steps):
                    right[step] += _right(model, moved[:, step], upright.labels[part])
                advance(len(moved))
            curves[factor] = {"strength": values, "accuracy": [count / len(upright) for count in right]}
    return curves


def _right(model: Model, images: Tensor, labels: Tensor) -> int:
    device = next(model.parameters()).device
    return int((predict_labels(model, images.to(device)).cpu() == labels).sum())
