"""smallNORB: stereo photographs of 50 toys. https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/

``smallnorb`` reads the official files; ``smallnorb-jpeg`` reads the same images, in the same order, from JPEG files in
two zip archives, with the official label files. smallNORB is for research use only: torchcaps contains no image of it.
"""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.data.base import TensorImages, chunks
from torchcaps.data.datasets.viewpoints import (
    AUGMENTATION,
    CATEGORIES,
    CROP,
    PAIRS,
    SIZE,
    add_viewpoint_records,
    as_image_set,
    halve,
    shuffled,
)
from torchcaps.data.io.cache import Tensors, cached
from torchcaps.data.io.download import File, data_cache, fetch_files, locate_file
from torchcaps.data.io.formats import read_matrix
from torchcaps.data.io.pictures import decode_picture
from torchcaps.data.io.sources import Mirror
from torchcaps.data.registry import DatasetRecord, datasets
from torchcaps.errors import TorchcapsError
from torchcaps.progress import progress_bar

STEMS = {
    "train": "smallnorb-5x46789x9x18x6x2x96x96-training",
    "test": "smallnorb-5x01235x9x18x6x2x96x96-testing",
}
PIXELS, CATEGORY, INFO = 24 + PAIRS * 2 * 96 * 96, 20 + PAIRS * 4, 20 + PAIRS * 4 * 4  # file sizes, header included
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
JPEG_SIDE = 96
JPEG_FILES = (
    File("train.zip", 52_840_323, "sha256:f543d4d0ddee5d8ff677ff2be175f5e4d42844ffa69ac9df2caa51cabff36cd9"),
    File("test.zip", 52_466_807, "sha256:fcedf04423ce7fc0f033f1cc1c4a36d7afb5b7108c8fb6b66c9d939611ecd5e1"),
    *(replace(file, packed="") for file in FILES if "-dat." not in file.name),  # recompressed
)


def read_factors(folder: Path, stem: str) -> Tensors:
    """Read the two label files of one split; NORB's codes are converted to degrees."""
    parts = {kind: f"{stem}-{kind}.mat.gz" for kind in ("cat", "info")}
    paths = {kind: locate_file(folder, name) or folder / name for kind, name in parts.items()}
    labels, info = read_matrix(paths["cat"], 1), read_matrix(paths["info"], 2)
    if info.shape[1] != 4 or len(labels) != len(info):
        counts = f"{len(labels)} categories, {tuple(info.shape)} factors"
        raise TorchcapsError(f"the label files of {stem} do not belong together: {counts}")
    limits = torch.tensor([9, 8, 34, 5])
    if bool((info < 0).any() or (info > limits).any()):
        raise TorchcapsError(f"{paths['info']}: a factor is out of range (instance, elevation, azimuth, lighting)")
    if bool((labels < 0).any() or (labels >= len(CATEGORIES)).any()):
        raise TorchcapsError(f"{paths['cat']}: categories must be 0 to {len(CATEGORIES) - 1}")
    return {
        "labels": labels,
        "instance": info[:, 0],
        "elevation": 30 + 5 * info[:, 1],
        "azimuth": 10 * info[:, 2],
        "lighting": info[:, 3],
    }


def read_toys(folder: Path, stem: str) -> Tensors:
    """Read the three official files of one split, downsampled by 2."""
    factors = read_factors(folder, stem)
    path = locate_file(folder, f"{stem}-dat.mat.gz") or folder / f"{stem}-dat.mat.gz"
    images = read_matrix(path, 4)
    if images.dtype != torch.uint8 or images.shape[1] != 2 or images.shape[2] % 2 or images.shape[3] % 2:
        raise TorchcapsError(f"{path}: expected bytes (N, 2, 96, 96), found {tuple(images.shape)} {images.dtype}")
    if len(images) != len(factors["labels"]):
        raise TorchcapsError(
            f"the files of {stem} do not belong together: {len(images)} images, {len(factors['labels'])} categories"
        )
    return {"images": halve(images), **factors}


def decode_jpeg(archive: zipfile.ZipFile, name: str) -> Tensor:
    """Decode one JPEG of an archive: uint8 (1, 96, 96)."""
    if archive.getinfo(name).file_size > JPEG_SIDE**2:
        raise TorchcapsError(f"{name} has more bytes than its {JPEG_SIDE}x{JPEG_SIDE} pixels: no JPEG of smallNORB")
    return decode_picture(archive.read(name), size=JPEG_SIDE, grey=True, formats=("JPEG",), most_pixels=JPEG_SIDE**2)


def read_jpegs(folder: Path, split: str) -> Tensors:
    """Read the JPEG files of one split, downsampled by 2, and check their names against the label files."""
    factors = read_factors(folder, STEMS[split])
    categories, instances = factors["labels"].tolist(), factors["instance"].tolist()
    names = [
        f"{index:06}_{CATEGORIES[category]}_{instance:02}_{camera}.jpg"
        for index, (category, instance) in enumerate(zip(categories, instances, strict=True))
        for camera in ("lt", "rt")
    ]
    path = folder / f"{split}.zip"
    images = torch.empty(len(names), 1, SIZE, SIZE, dtype=torch.uint8)
    with zipfile.ZipFile(path) as archive, progress_bar(f"decoding smallNORB {split}", len(names)) as advance:
        if sorted(archive.namelist()) != sorted(names):
            raise TorchcapsError(f"{path}: expected the {len(names)} pictures that the label files describe")
        for chunk in chunks(len(names), 1000):
            pictures = [decode_jpeg(archive, name) for name in names[chunk]]
            images[chunk] = halve(torch.stack(pictures))
            advance(len(pictures))
    return {"images": images.view(-1, 2, SIZE, SIZE), **factors}


def open_smallnorb(split: str) -> TensorImages:
    """Open one split of smallNORB at 48x48, cached at that size, in a fixed random order."""

    def make() -> Tensors:
        needed = [file for file in FILES if file.name.startswith(STEMS[split])]
        return read_toys(fetch_files("smallnorb", FILES, SOURCES, needed=needed), STEMS[split])

    path = data_cache() / "smallnorb" / f"{split}-{SIZE}.safetensors"
    return shuffled(as_image_set(cached(path, STEMS[split], make)))


def open_smallnorb_jpeg(split: str) -> TensorImages:
    """Open one split of smallNORB from JPEG files at 48x48, cached at that size, in the order of ``smallnorb``."""
    pictures = next(file for file in JPEG_FILES if file.name == f"{split}.zip")

    def make() -> Tensors:
        needed = [pictures, *(file for file in JPEG_FILES if file.name.startswith(STEMS[split]))]
        return read_jpegs(fetch_files("smallnorb-jpeg", JPEG_FILES, (), needed=needed), split)

    path = data_cache() / "smallnorb-jpeg" / f"{split}-{SIZE}.safetensors"
    return shuffled(as_image_set(cached(path, pictures.checksum, make)))


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
add_viewpoint_records(
    replace(
        datasets.get("smallnorb"),
        name="smallnorb-jpeg",
        description="smallNORB from JPEG pictures that a user has",
        open=open_smallnorb_jpeg,
        files=JPEG_FILES,
        sources=(),
        folder="smallnorb-jpeg",
    ),
    open_smallnorb_jpeg,
)
