"""Test images as a model of another image size can take them."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.data import ImageSet, MemoryImages, datasets
from torchcaps.data.geometry import place
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model

SMALLEST = 28  # pixels a side: below that digits would be cut off


def check_digits(model: Model, data: str, what: str) -> None:
    """Refuse a model that was trained on something else than MNIST's digits."""
    if datasets.get(data).folder != "mnist" or model.image_shape[0] != 1 or model.image_shape[1] < SMALLEST:
        raise TorchcapsError(f"{what} cannot be shown to a model trained on {data}: train on MNIST's digits")


def on_canvas(images: Tensor, side: int) -> Tensor:
    """The middle of images on a square of this side: cut off where they are larger, black around where smaller.

    Shapes: (..., C, H, W) to (..., C, side, side).

    >>> on_canvas(torch.ones(1, 1, 2, 2), 4)[0, 0].tolist()[1]
    [0.0, 1.0, 1.0, 0.0]
    """
    height, width = images.shape[-2:]
    flat = images.flatten(0, -4)
    offset = torch.tensor([(side - height) // 2, (side - width) // 2]).expand(len(flat), 2)
    return place(flat, offset, (side, side)).view(*images.shape[:-2], side, side)


def first_images(model: Model, images: ImageSet, count: int | None) -> MemoryImages:
    """The first so many images of a set with one label each, None for all, at the model's size."""
    batch = images.batch(torch.arange(len(images) if count is None else min(count, len(images))))
    if batch.labels.ndim != 1:
        raise TorchcapsError(f"this test needs one label per image, got {batch.labels.shape[1]}")
    pixels = on_canvas(batch.images, model.image_shape[1]).mul(255).round().to(torch.uint8)
    return MemoryImages(pixels, batch.labels, images.class_names, batch.factors)
