"""What a model is shown of an image outside training: crops."""

from __future__ import annotations

import torch
from torch import Tensor

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
