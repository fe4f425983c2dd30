"""What a model is shown of an image outside training: crops, and pixels brought to a common scale."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.data.base import DatasetRecord, ImageSet, pieces
from torchcaps.data.transforms import check_fits

DIAGONALS = ((-1, -1), (-1, 1), (1, -1), (1, 1))


def centre_crop(images: Tensor, size: int) -> Tensor:
    """The middle of each image. (B, C, H, W) to (B, C, size, size)."""
    return offset_crop(images, size, 0, 0)


def offset_crop(images: Tensor, size: int, down: int, right: int) -> Tensor:
    """A square that lies beside the middle by so many pixels. (B, C, H, W) to (B, C, size, size)."""
    height, width = images.shape[2:]
    check_fits(size + 2 * max(abs(down), abs(right)), height, width)
    top, left = (height - size) // 2 + down, (width - size) // 2 + right
    return images[:, :, top : top + size, left : left + size]


def thirteen_crops(images: Tensor, size: int) -> Tensor:
    """The multi-crop test of hinton2018: the centre, and four diagonal offsets of 1, 2 and 3 pixels.

    A model's scores are averaged over the 13. (B, C, H, W) to (13, B, C, size, size).
    """
    offsets = [(0, 0)] + [(down * step, right * step) for step in (1, 2, 3) for down, right in DIAGONALS]
    return torch.stack([offset_crop(images, size, down, right) for down, right in offsets])


def evaluation_view(images: Tensor, record: DatasetRecord) -> Tensor:
    """What a model sees of these images in validation and test: the centre crop, where the dataset has one.

    Images that have the model's size already (a random crop in training) are left as they are.
    """
    if record.crop is None or tuple(images.shape[2:]) == (record.crop, record.crop):
        return images
    return centre_crop(images, record.crop)


def standardise(images: Tensor) -> Tensor:
    """Each image to mean 0 and variance 1 over all its pixels and channels, as hinton2018 has it.

    The deviation has a floor of 1 / sqrt(pixels), so that a blank image stays finite. (B, C, H, W) to the same.
    """
    flat = images.flatten(1)
    floor = flat.shape[1] ** -0.5
    deviation = flat.std(dim=1, correction=0).clamp(min=floor)
    return ((flat - flat.mean(dim=1, keepdim=True)) / deviation[:, None]).reshape(images.shape)


def mean_image(whole: ImageSet, *, at_once: int = 1000) -> Tensor:
    """The mean over a set, pixel by pixel, which chen2019 subtracts from CIFAR-10. Shape (C, H, W)."""
    total = torch.zeros(whole.shape, dtype=torch.float64)
    for part in pieces(len(whole), at_once):
        total += whole.batch(torch.arange(part.start, part.stop)).images.sum(dim=0, dtype=torch.float64)
    return (total / max(1, len(whole))).float()
