"""affNIST: affine transformed MNIST test digits, 40x40, generated or read from the official file.

The generated version follows gu2021, section 3.1: rotation within 20 degrees, shear within 45 degrees, scale 0.8 to
1.2 and shift within 8 pixels on each axis. The transform of digit k depends only on (seed, k), so every model sees the
same images. The training split is ``mnist-40``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from torchcaps.data.base import TensorImages, as_floats, chunks
from torchcaps.data.counter_rng import uniform
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
from torchcaps.data.transforms import rotation, scaling, shearing, warp
from torchcaps.errors import TorchcapsError

RANGES = {
    "rotation": (-20.0, 20.0),  # degrees
    "shear": (-45.0, 45.0),  # degrees, along x
    "scale_x": (0.8, 1.2),
    "scale_y": (0.8, 1.2),
    "shift_x": (-8.0, 8.0),  # pixels
    "shift_y": (-8.0, 8.0),
}
OFFICIAL = "https://www.cs.toronto.edu/~tijmen/affNIST/32x/transformed/test.mat.zip"
BY_HAND = "affnist/test.mat"
AT_ONCE = 500


def change_digits(digits: TensorImages, seed: int, side: int = CANVAS) -> TensorImages:
    """Apply one random affine transform to each digit; its parameters, drawn from RANGES, become the factors.

    ``side`` is the size of the result; shifts are scaled in proportion to it.
    """
    positions = torch.arange(len(digits))
    factors = {
        name: (low + (high - low) * uniform(seed, stream, positions)).float()
        for stream, (name, (low, high)) in enumerate(RANGES.items())
    }
    rotations, shears = rotation(factors["rotation"]), shearing(factors["shear"], torch.zeros(len(digits)))
    matrices = rotations @ shears @ scaling(factors["scale_x"], factors["scale_y"])
    for name in ("shift_x", "shift_y"):
        factors[name] = factors[name] * (side / CANVAS)
    shifts = torch.stack([factors["shift_x"], factors["shift_y"]], dim=1)
    images = torch.empty(len(digits), digits.shape[0], side, side, dtype=torch.uint8)
    for part in chunks(len(digits), AT_ONCE):
        changed = warp(as_floats(digits.images[part]), matrices[part], shifts[part], (side, side))
        images[part] = changed.mul_(255).round_().to(torch.uint8)
    return TensorImages(images, digits.labels, digits.class_names, factors)


def open_affnist(split: str, seed: int = 0) -> TensorImages:
    """Open one split: digits placed on a 40x40 canvas for training, affine transformed digits for test."""
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
        name="affnist-official",
        description="digits under affine change, the original file",
        splits={"train": COUNTS["train"], "test": 320_000},
        open=open_official,
        by_hand=BY_HAND,
    )
)
