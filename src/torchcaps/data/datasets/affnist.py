"""affNIST: affine transformed MNIST test digits, 40x40, generated or read from the official file.

There are two generated versions, with rotation within 20 degrees and scale 0.8 to 1.2 on each axis:

- ``affnist``: shear by a factor from -0.2 to 0.2 (1 would be 45 degrees), and a shift within 8 pixels that keeps the
  whole digit on the canvas. As far as we know, this is how affNIST was made.
- ``affnist-45``: shear within 45 degrees and any shift within 8 pixels, as gu2021 describes affNIST in section 3.1.

gu2021's sentence is very probably wrong about the shear; docs/data.md compares the accuracy on both.

The transform of digit k depends only on (seed, k), so every model sees the same images. The training split is that of
``mnist-40``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.data.base import TensorImages, as_floats, chunks
from torchcaps.data.counter_rng import integers, uniform
from torchcaps.data.datasets.mnist import (
    CANVAS,
    CITATION,
    COUNTS,
    DIGITS,
    FILES,
    LICENCE,
    SOURCES,
    open_mnist,
    open_placed,
)
from torchcaps.data.io.download import data_folders, find_manual_file
from torchcaps.data.io.formats import read_struct
from torchcaps.data.registry import DatasetRecord, datasets
from torchcaps.data.transforms import place, rotation, scaling, shearing, warp
from torchcaps.errors import TorchcapsError

RANGES = {  # of affnist-45
    "rotation": (-20.0, 20.0),  # degrees
    "shear": (-45.0, 45.0),  # degrees, along x
    "scale_x": (0.8, 1.2),
    "scale_y": (0.8, 1.2),
    "shift_x": (-8.0, 8.0),  # pixels
    "shift_y": (-8.0, 8.0),
}
STREAMS = {name: stream for stream, name in enumerate(RANGES)}  # of the random numbers
SHEAR, SHIFT = 0.2, 8  # of affnist: the largest factor, along x, and the largest shift in pixels
MARGIN = 12  # pixels around the canvas: no transformed digit is larger
OFFICIAL = "https://www.cs.toronto.edu/~tijmen/affNIST/32x/transformed/test.mat.zip"
BY_HAND = "affnist/test.mat"
AT_ONCE = 500


def transform_digits(digits: TensorImages, seed: int, side: int = CANVAS) -> TensorImages:
    """Apply a random rotation, shear factor and scale to each digit, and shift it without losing any part of it.

    ``side`` is the size of the result. The drawn values become the factors; ``shear`` is the factor.
    """
    factors = _draw_factors(digits, seed, RANGES | {"shear": (-SHEAR, SHEAR)})
    matrices = _matrices(factors, torch.rad2deg(factors["shear"].atan()))
    large = side + 2 * MARGIN
    images = torch.empty(len(digits), digits.shape[0], side, side, dtype=torch.uint8)
    for part in chunks(len(digits), AT_ONCE):
        changed = _to_bytes(warp(as_floats(digits.images[part]), matrices[part], size=(large, large)))
        offset = torch.empty(len(changed), 2, dtype=torch.long)  # of the large canvas on the small one: row, column
        for axis, name in enumerate(("shift_y", "shift_x")):
            occupied = (changed > 0).any(dim=1).any(dim=2 - axis).int()  # (B, large)
            first, last = occupied.argmax(1), large - 1 - occupied.flip(1).argmax(1)
            lowest = (-first).clamp(min=-MARGIN - SHIFT)
            places = ((side - 1 - last).clamp(max=-MARGIN + SHIFT) - lowest + 1).clamp(min=1)
            offset[:, axis] = lowest + integers(seed, STREAMS[name], torch.arange(part.start, part.stop), places)
            factors[name][part] = (offset[:, axis] + MARGIN).float()
        images[part] = place(changed, offset, (side, side))
    return TensorImages(images, digits.labels, digits.class_names, factors)


def change_digits(digits: TensorImages, seed: int, size: tuple[int, int] = (CANVAS, CANVAS)) -> TensorImages:
    """Apply one random affine transform to each digit; its parameters, drawn from RANGES, become the factors.

    ``size`` are rows and columns of the result; shifts are scaled in proportion to the shorter side.
    """
    factors = _draw_factors(digits, seed, RANGES)
    matrices = _matrices(factors, factors["shear"])
    for name in ("shift_x", "shift_y"):
        factors[name] = factors[name] * (min(size) / CANVAS)
    shifts = torch.stack([factors["shift_x"], factors["shift_y"]], dim=1)
    images = torch.empty(len(digits), digits.shape[0], *size, dtype=torch.uint8)
    for part in chunks(len(digits), AT_ONCE):
        images[part] = _to_bytes(warp(as_floats(digits.images[part]), matrices[part], shifts[part], size))
    return TensorImages(images, digits.labels, digits.class_names, factors)


def _draw_factors(digits: TensorImages, seed: int, ranges: dict[str, tuple[float, float]]) -> dict[str, Tensor]:
    positions = torch.arange(len(digits))
    return {
        name: (low + (high - low) * uniform(seed, STREAMS[name], positions)).float()
        for name, (low, high) in ranges.items()
    }


def _matrices(factors: dict[str, Tensor], shear: Tensor) -> Tensor:
    """Return the matrices (N, 2, 2) of the drawn factors; ``shear`` is in degrees."""
    sheared = rotation(factors["rotation"]) @ shearing(shear, torch.zeros_like(shear))
    return sheared @ scaling(factors["scale_x"], factors["scale_y"])


def _to_bytes(images: Tensor) -> Tensor:
    return images.mul_(255).round_().to(torch.uint8)


def open_affnist(split: str, seed: int = 0) -> TensorImages:
    """Open one split: digits placed on a 40x40 canvas for training, affine transformed digits for test."""
    return open_placed(split) if split == "train" else transform_digits(open_mnist(split), seed)


def open_affnist_45(split: str, seed: int = 0) -> TensorImages:
    """Open one split as in :func:`open_affnist`, with the ranges that gu2021 gives."""
    return open_placed(split) if split == "train" else change_digits(open_mnist(split), seed)


def read_affnist(path: Path) -> TensorImages:
    """Read an official affNIST file: a MATLAB struct with ``image`` (1600 x N) and ``label_int`` (1 x N)."""
    content = read_struct(path, "affNISTdata", ("image", "label_int"))
    images, labels = content["image"], content["label_int"].reshape(-1)
    if images.dtype != torch.uint8 or images.ndim != 2 or images.shape[0] != CANVAS**2:
        raise TorchcapsError(
            f"{path}: expected {CANVAS**2} x N bytes of images, found {tuple(images.shape)} {images.dtype}"
        )
    if labels.is_floating_point() and not torch.equal(labels, labels.round()):
        raise TorchcapsError(f"{path}: labels must be integers")
    # Each column is one image in column-major order.
    pictures = images.t().reshape(-1, 1, CANVAS, CANVAS).transpose(2, 3).contiguous()
    return TensorImages(pictures, labels, DIGITS)


def open_official(split: str) -> TensorImages:
    """Open one split: training as in ``open_affnist``, test from the official file.

    The user must provide that file, because no checksum of it was published.
    """
    if split == "train":
        return open_placed(split)
    path = find_manual_file(BY_HAND)
    if path:
        return read_affnist(path)
    raise TorchcapsError(
        f"the official affNIST file was not found: unpack {OFFICIAL} into {data_folders('affnist')[0]}, "
        "or use the dataset 'affnist', which is generated"
    )


RECORD = DatasetRecord(
    name="affnist",
    description="digits under affine change, generated from MNIST",
    shape=(1, CANVAS, CANVAS),
    class_names=DIGITS,
    splits=COUNTS,
    licence=LICENCE,
    citation=f"Tieleman: affNIST, 2013; {CITATION}",
    open=open_affnist,
    files=FILES,
    sources=SOURCES,
    folder="mnist",
    augmentation="shift=2",
)
datasets.add(RECORD)
datasets.add(
    replace(
        RECORD,
        name="affnist-45",
        description="digits under affine change with more shear, as gu2021 describes affNIST",
        open=open_affnist_45,
    )
)
datasets.add(
    replace(
        RECORD,
        name="affnist-official",
        description="digits under affine change, the original file",
        splits={"train": COUNTS["train"], "test": 320_000},
        open=open_official,
        by_hand=BY_HAND,
    )
)
