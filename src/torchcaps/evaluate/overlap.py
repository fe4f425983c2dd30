"""Overlap: two digits on top of each other, both to be found, and each to be drawn without the other.

sabour2017, section 6; gu2021, section 3.2: MultiMNIST on 36x36, right where the two highest scores are the two digits.

A model trained on single digits can be tested too, and the result says so (``trained_on_pairs``): it has never seen two
digits at once. It sees the middle of the 36x36 images at its own size. At 28x28 next to nothing is lost by that: a
digit was shifted by 4 pixels at most, and MNIST leaves about as many free around it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchcaps.attacks.model_wrapper import frozen_eval
from torchcaps.data import Batch, ImageSet, datasets, load_dataset
from torchcaps.data.base import chunks
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate.clean import center_on_canvas, check_digits
from torchcaps.models import Model, Output
from torchcaps.progress import progress_bar
from torchcaps.train.objective import correct

AT_ONCE = 250


def overlap_set(model: Model, data: str) -> ImageSet:
    """The overlaid digits that a model trained on this dataset is tested on."""
    if datasets.get(data).labels_per_image == 2:
        return load_dataset(data, "test")
    check_digits(model, data, "overlaid digits")
    return load_dataset("multimnist", "test")


@torch.no_grad()
def measure_overlap(model: Model, images: ImageSet, *, images_used: int | None, pairs: bool) -> dict[str, Any]:
    """Accuracy, and the mean squared error of a pixel where each digit is drawn on its own.

    The error is over the true digits' capsules, whether they won or not. ``error_of_image`` is what drawing the
    overlaid image for both digits would give, ``error_of_black`` what drawing nothing would.

    Args:
        model: a trained model.
        images: overlaid digits, with each digit's own picture as target.
        images_used: the first so many; None: all.
        pairs: whether the model was trained on pairs; kept in the result.
    """
    count = len(images) if images_used is None else min(images_used, len(images))
    right, sums = 0, torch.zeros(3, dtype=torch.float64)
    draws = has_conditional_decoder(model)
    with frozen_eval(model, seed=0), progress_bar("overlap", count) as advance:
        for part in chunks(count, AT_ONCE):
            batch = fitted_batch(model, images, torch.arange(part.start, part.stop))
            output = model(batch.images)
            right += int(correct(output.scores, batch.labels).sum())
            assert batch.targets is not None
            whole, black = batch.images.unsqueeze(1), torch.zeros(())
            drawn = _draw_each(model, output, batch.labels) if draws else black
            errors = [(each - batch.targets).square().mean((1, 2, 3, 4)).sum() for each in (drawn, whole, black)]
            sums += torch.stack(errors).double().cpu()
            advance(len(batch.labels))
    drawing, of_image, of_black = (sums / count).tolist()
    return {
        "name": "multimnist" if pairs else "multimnist, untrained",
        "about": f"two overlaid digits at {model.image_shape[1]}x{model.image_shape[2]}"
        + ("" if pairs else ", by a model trained on single digits"),
        "images": count,
        "trained_on_pairs": pairs,
        "accuracy": right / count,
        "drawing_error": drawing if draws else None,
        "error_of_image": of_image,
        "error_of_black": of_black,
    }


def has_conditional_decoder(model: Model) -> bool:
    """Whether a model draws from one class's capsule alone; a decoder fed with all classes draws all of them."""
    return model.decoder is not None and model.decoder.conditional


@torch.no_grad()
def overlap_reconstructions(model: Model, images: ImageSet, count: int) -> Tensor:
    """The first images, each with its digits and their drawings: (count, 5, C, H, W).

    In this order: the overlaid image, the first digit, its drawing, the second digit, its drawing.
    """
    batch = fitted_batch(model, images, torch.arange(min(count, len(images))))
    assert batch.targets is not None
    with frozen_eval(model, seed=0):
        drawn = _draw_each(model, model(batch.images), batch.labels)
    targets = batch.targets
    return torch.stack([batch.images, targets[:, 0], drawn[:, 0], targets[:, 1], drawn[:, 1]], dim=1).cpu()


def fitted_batch(model: Model, images: ImageSet, indices: Tensor) -> Batch:
    """Overlaid images with their targets at the model's size, where the model is."""
    batch, side, device = images.batch(indices), model.image_shape[1], next(model.parameters()).device
    if batch.targets is None or batch.labels.ndim != 2 or batch.labels.shape[1] != 2:
        raise TorchcapsError("overlap needs images of two labels with a picture of each: use multimnist")
    pixels, targets = (center_on_canvas(each, side).to(device) for each in (batch.images, batch.targets))
    return Batch(pixels, batch.labels.to(device), targets)


def _draw_each(model: Model, output: Output, labels: Tensor) -> Tensor:
    """What the model draws for each of two digits: (B, 2, C, H, W)."""
    return torch.stack([model.reconstruct(output, labels[:, number]) for number in (0, 1)], dim=1)
