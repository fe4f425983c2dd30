"""Overlapping digits (MultiMNIST): classify both digits of an image and reconstruct each of them.

sabour2017, section 6; gu2021, section 3.2: MultiMNIST on 36x36; correct if the two highest scores are the two digits.

A model trained on single digits can be tested too, which the result records (``trained_on_pairs``). It gets the center
of the 36x36 images at its own size. At 28x28 almost nothing is lost: digits are shifted by at most 4 pixels, and MNIST
leaves a margin of about as many.
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

BATCH = 250


def overlap_set(model: Model, data: str) -> ImageSet:
    """Return the overlaid digits on which a model trained on this dataset is tested."""
    if datasets.get(data).labels_per_image == 2:
        return load_dataset(data, "test")
    check_digits(model, data, "overlaid digits")
    return load_dataset("multimnist", "test")


@torch.no_grad()
def measure_overlap(model: Model, images: ImageSet, *, images_used: int | None, pairs: bool) -> dict[str, Any]:
    """Measure accuracy, and the mean squared error per pixel of the reconstruction of each digit.

    The reconstructions come from the capsules of the true digits. For comparison, ``error_of_image`` is the error of
    the overlaid image itself as reconstruction of both digits, and ``error_of_black`` that of a black image.

    Args:
        model: a trained model.
        images: overlaid digits, with the image of each digit as target.
        images_used: number of images, from the start of the set; None for all.
        pairs: whether the model was trained on pairs; recorded in the result.
    """
    count = len(images) if images_used is None else min(images_used, len(images))
    right, sums = 0, torch.zeros(3, dtype=torch.float64)
    decodes = has_conditional_decoder(model)
    with frozen_eval(model, seed=0), progress_bar("overlap", count) as advance:
        for part in chunks(count, BATCH):
            batch = fitted_batch(model, images, torch.arange(part.start, part.stop))
            output = model(batch.images)
            right += int(correct(output.scores, batch.labels).sum())
            assert batch.targets is not None
            whole, black = batch.images.unsqueeze(1), torch.zeros(())
            decoded = _reconstruct_each(model, output, batch.labels) if decodes else black
            errors = [(each - batch.targets).square().mean((1, 2, 3, 4)).sum() for each in (decoded, whole, black)]
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
        "drawing_error": drawing if decodes else None,
        "error_of_image": of_image,
        "error_of_black": of_black,
    }


def has_conditional_decoder(model: Model) -> bool:
    """Return whether the model can reconstruct one class alone: a decoder of all classes reconstructs all of them."""
    return model.decoder is not None and model.decoder.conditional


@torch.no_grad()
def overlap_reconstructions(model: Model, images: ImageSet, count: int) -> Tensor:
    """Return the first images with their digits and reconstructions, (count, 5, C, H, W).

    In this order: the overlaid image, the first digit, its reconstruction, the second digit, its reconstruction.
    """
    batch = fitted_batch(model, images, torch.arange(min(count, len(images))))
    assert batch.targets is not None
    with frozen_eval(model, seed=0):
        decoded = _reconstruct_each(model, model(batch.images), batch.labels)
    targets = batch.targets
    return torch.stack([batch.images, targets[:, 0], decoded[:, 0], targets[:, 1], decoded[:, 1]], dim=1).cpu()


def fitted_batch(model: Model, images: ImageSet, indices: Tensor) -> Batch:
    """Return overlaid images and their targets at the model's image size, on the model's device."""
    batch, side, device = images.batch(indices), model.image_shape[1], next(model.parameters()).device
    if batch.targets is None or batch.labels.ndim != 2 or batch.labels.shape[1] != 2:
        raise TorchcapsError("the overlap test needs images with two labels and an image of each digit: use multimnist")
    pixels, targets = (center_on_canvas(each, side).to(device) for each in (batch.images, batch.targets))
    return Batch(pixels, batch.labels.to(device), targets)


def _reconstruct_each(model: Model, output: Output, labels: Tensor) -> Tensor:
    """Reconstruct each of the two digits: (B, 2, C, H, W)."""
    return torch.stack([model.reconstruct(output, labels[:, number]) for number in (0, 1)], dim=1)
