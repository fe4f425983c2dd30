"""smallNORB: photographs of 50 toys, stereo pairs. https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/"""

from __future__ import annotations

from pathlib import Path

import torch

from torchcaps.data.base import DatasetRecord, MemoryImages
from torchcaps.data.datasets.viewpoints import (
    AUGMENTATION,
    CATEGORIES,
    CROP,
    PAIRS,
    SIZE,
    add_viewpoint_records,
    as_image_set,
    halve,
)
from torchcaps.data.io.cache import Tensors, cached
from torchcaps.data.io.download import File, data_cache, locate, obtain
from torchcaps.data.io.formats import read_matrix
from torchcaps.data.io.sources import Mirror
from torchcaps.errors import TorchcapsError

STEMS = {
    "train": "smallnorb-5x46789x9x18x6x2x96x96-training",
    "test": "smallnorb-5x01235x9x18x6x2x96x96-testing",
}
PIXELS, CATEGORY, INFO = 24 + PAIRS * 2 * 96 * 96, 20 + PAIRS * 4, 20 + PAIRS * 4 * 4  # file sizes: header and data
FILES = (
    File(
        f"{STEMS['train']}-dat.mat.gz",
        PIXELS,
        "md5:8138a0902307b32dfa0025a36dfa45ec",
        packed="md5:66054832f9accfe74a0f4c36a75bc0a2",
    ),
    File(
        f"{STEMS['train']}-cat.mat.gz",
        CATEGORY,
        "md5:fd5120d3f770ad57ebe620eb61a0b633",
        packed="md5:23c8b86101fbf0904a000b43d3ed2fd9",
    ),
    File(
        f"{STEMS['train']}-info.mat.gz",
        INFO,
        "md5:19faee774120001fc7e17980d6960451",
        packed="md5:51dee1210a742582ff607dfd94e332e3",
    ),
    File(
        f"{STEMS['test']}-dat.mat.gz",
        PIXELS,
        "md5:e9920b7f7b2869a8f1a12e945b2c166c",
        packed="md5:e4ad715691ed5a3a5f138751a4ceb071",
    ),
    File(
        f"{STEMS['test']}-cat.mat.gz",
        CATEGORY,
        "md5:fd5120d3f770ad57ebe620eb61a0b633",
        packed="md5:5aa791cd7e6016cf957ce9bdb93b8603",
    ),
    File(
        f"{STEMS['test']}-info.mat.gz",
        INFO,
        "md5:7c5b871cc69dcadec1bf6a18141f5edc",
        packed="md5:a9454f3864d7fd4bb3ea7fc3eb84924e",
    ),
)
SOURCES = (Mirror("https://cs.nyu.edu/~ylclab/data/norb-v1.0-small"),)


def read_toys(folder: Path, stem: str) -> Tensors:
    """Read the three files of one split, pixels halved. Factors as degrees and numbers, not as NORB's codes."""
    parts = {kind: f"{stem}-{kind}.mat.gz" for kind in ("dat", "cat", "info")}
    paths = {kind: locate(folder, name) or folder / name for kind, name in parts.items()}
    images, labels, info = (read_matrix(paths[kind], sizes) for kind, sizes in (("dat", 4), ("cat", 1), ("info", 2)))
    if images.dtype != torch.uint8 or images.shape[1] != 2 or images.shape[2] % 2 or images.shape[3] % 2:
        raise TorchcapsError(
            f"{paths['dat']}: expected bytes (N, 2, 96, 96), found {tuple(images.shape)} {images.dtype}"
        )
    if info.shape[1] != 4 or not len(images) == len(labels) == len(info):
        counts = f"{len(images)} images, {len(labels)} categories, {tuple(info.shape)} factors"
        raise TorchcapsError(f"the files of {stem} do not belong together: {counts}")
    limits = torch.tensor([9, 8, 34, 5])
    if bool((info < 0).any() or (info > limits).any()):
        raise TorchcapsError(f"{paths['info']}: a factor is out of range (instance, elevation, azimuth, lighting)")
    if bool((labels < 0).any() or (labels >= len(CATEGORIES)).any()):
        raise TorchcapsError(f"{paths['cat']}: categories must be 0 to {len(CATEGORIES) - 1}")
    return {
        "images": halve(images),
        "labels": labels,
        "instance": info[:, 0],
        "elevation": 30 + 5 * info[:, 1],
        "azimuth": 10 * info[:, 2],
        "lighting": info[:, 3],
    }


def open_smallnorb(split: str) -> MemoryImages:
    """One split of smallNORB at 48x48; kept at that size after the first time."""

    def make() -> Tensors:
        needed = [file for file in FILES if file.name.startswith(STEMS[split])]
        return read_toys(obtain("smallnorb", FILES, SOURCES, needed=needed), STEMS[split])

    return as_image_set(cached(data_cache() / "smallnorb" / f"{split}-{SIZE}.safetensors", STEMS[split], make))


add_viewpoint_records(
    DatasetRecord(
        name="smallnorb",
        description="photographs of toys from all sides, stereo",
        shape=(2, SIZE, SIZE),
        class_names=CATEGORIES,
        splits={"train": PAIRS, "test": PAIRS},
        licence="research only",
        citation="LeCun, Huang, Bottou: Learning methods for generic object recognition, 2004",
        open=open_smallnorb,
        files=FILES,
        sources=SOURCES,
        folder="smallnorb",
        augmentation=AUGMENTATION,
        crop=CROP,
    ),
    open_smallnorb,
)
