"""Accuracy under affine transformations for which the model was not trained: rotation, shear, scale and shift.

gu2021, section 3.1; choi2019, section 4.1: trained on MNIST placed on 40x40, tested on affNIST. It is generated in two
versions, ``affnist`` and ``affnist-45``, see data/datasets/affnist.py. A model for other images is tested on its own
test images, transformed at their own size. That is a different test, because pixels moved over the border are lost, and
its figures cannot be compared with published ones. The result says which test was used.
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
from torchcaps.data.datasets.image_folder import display_name
from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.evaluate.clean import first_images
from torchcaps.models import Model
from torchcaps.progress import progress_bar

FACTORS = ("rotation", "shear_x", "scale", "shift_x", "shift_y")  # those of affNIST; one scale for both axes
STEPS = 9  # odd: the middle step is the identity
PLACED = ("mnist-40", "mnist-40-moving", "affnist", "affnist-45", "affnist-official")  # training sets for affNIST
VARIANTS = {
    "affnist": "generated with a shear factor of up to 0.2",
    "affnist-45": "generated with shear within 45 degrees, after gu2021",
    "affnist-official": "the original file",
}
BATCH = 50


@dataclass(frozen=True)
class AffineSets:
    """Upright and transformed test images, with the name and description of the test."""

    name: str
    about: str
    upright: TensorImages
    changed: TensorImages


def affine_sets(model: Model, data: str, images_used: int | None, variant: str | None = None) -> AffineSets:
    """Return the test images for a model trained on this dataset.

    ``variant`` is one of ``VARIANTS``, for a model trained on digits on 40x40. By default it is ``affnist``, or the
    original file if the model was trained on ``affnist-official``.
    """
    if data in PLACED:
        variant = variant or ("affnist-official" if data == "affnist-official" else "affnist")
        if variant not in VARIANTS:
            raise unknown_name("version of affNIST", variant, VARIANTS)
        upright, changed = (first_images(model, load_dataset(name, "test"), images_used) for name in ("mnist", variant))
        return AffineSets(variant, f"digits under affine change on 40x40, {VARIANTS[variant]}", upright, changed)
    if variant:
        raise TorchcapsError(f"{variant} is for models trained on digits on 40x40, not on {data}: train on mnist-40")
    upright = first_images(model, load_dataset(data, "test"), images_used)
    height, width = model.image_shape[1:]
    how = "changed in place, by gu2021's ranges with shifts in proportion"
    about = f"{height}x{width} test images of {display_name(data)} {how}"
    return AffineSets("affine in place", about, upright, change_digits(upright, seed=0, size=(height, width)))


def measure_affine(model: Model, sets: AffineSets, *, steps: int = STEPS) -> dict[str, Any]:
    """Measure accuracy on transformed images, and on upright images under one factor at a time.

    ``curves`` holds the strengths of each factor (degrees, pixels or scale) and the accuracy at each.
    """
    upright, changed = sets.upright, sets.changed
    with frozen_eval(model, seed=0):
        accuracy, upright_accuracy = (
            _count_correct(model, as_floats(each.images), each.labels) / len(each) for each in (changed, upright)
        )
        curves = affine_curves(model, upright, steps=steps)
    return {
        "name": sets.name,
        "about": sets.about,
        "images": len(changed),
        "upright_accuracy": upright_accuracy,
        "accuracy": accuracy,
        "curves": curves,
    }


def affine_curves(model: Model, upright: TensorImages, *, steps: int = STEPS) -> dict[str, dict[str, list[float]]]:
    """Measure accuracy against the strength of each factor alone, over its range in affNIST."""
    curves = {}
    with progress_bar("affine change", len(FACTORS) * len(upright)) as advance:
        for factor in FACTORS:
            values = [round(each, 4) for each in sweep_values(factor, min(model.image_shape[1:]), steps)]
            right = [0] * steps
            for part in chunks(len(upright), BATCH):
                moved = affine_sweep(as_floats(upright.images[part]), factor, values)  # (B, S, C, H, W)
                for step in range(steps):
                    right[step] += _count_correct(model, moved[:, step], upright.labels[part])
                advance(len(moved))
            curves[factor] = {"strength": values, "accuracy": [count / len(upright) for count in right]}
    return curves


def _count_correct(model: Model, images: Tensor, labels: Tensor) -> int:
    device = next(model.parameters()).device
    return int((predict_labels(model, images.to(device)).cpu() == labels).sum())
