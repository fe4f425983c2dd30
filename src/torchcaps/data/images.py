"""Your own pictures: a folder with one subfolder per class, or a CSV file with the columns ``path`` and ``label``.

As a dataset's name: ``images:FOLDER``, with settings behind commas: ``images:pets,size=48,grey=1,seed=3,strict=1``.
"""

from __future__ import annotations

import csv
import functools
import logging
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from torchcaps.data.base import DatasetRecord, MemoryImages, datasets
from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.progress import progress_bar

log = logging.getLogger(__name__)
# Only formats that Pillow decodes by itself: some others start a helper program.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
MOST_PIXELS = 100_000_000  # a small file may claim to be a huge picture
SIZES = range(8, 513)
TEST_SHARE = 0.2


@dataclass(frozen=True)
class ImageFolder:
    """A user's pictures, divided; ``skipped`` says which files were left out and why."""

    train: MemoryImages
    test: MemoryImages
    skipped: tuple[str, ...]


def open_images(
    root: str | Path, *, size: int = 32, grey: bool = False, seed: int = 0, strict: bool = False
) -> ImageFolder:
    """Read a folder or a CSV file of pictures; a fifth of each class, chosen by the seed, is for testing.

    Pictures keep their proportions: the largest middle square is scaled to ``size`` x ``size``. Broken files and
    files that lie outside the folder (through a link or "..") are skipped and listed, or stop everything if
    ``strict``.
    """
    if size not in SIZES:
        raise TorchcapsError(f"cannot bring pictures to {size} pixels: choose {SIZES.start} to {SIZES.stop - 1}")
    root = Path(root)
    entries = list_table(root) if root.is_file() else list_folder(root)
    boundary = (root.parent if root.is_file() else root).resolve()
    read = functools.partial(read_picture, boundary=boundary, size=size, grey=grey)
    pictures: list[Tensor | str] = []
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool, progress_bar("reading pictures", len(entries)) as bar:
        for picture in pool.map(read, (path for path, _ in entries)):
            pictures.append(picture)
            bar(1)
    skipped = tuple(picture for picture in pictures if isinstance(picture, str))
    if skipped and strict:
        raise TorchcapsError(f"{len(skipped)} of {len(entries)} pictures cannot be used; the first: {skipped[0]}")
    for problem in skipped:
        log.warning("skipped: %s", problem)
    good = [
        (picture, label) for picture, (_, label) in zip(pictures, entries, strict=True) if not isinstance(picture, str)
    ]
    names = tuple(sorted({label for _, label in good}))
    if len(names) < 2:
        raise TorchcapsError(
            f"{root} has pictures of {len(names)} classes, at least 2 are needed: one subfolder for each"
        )
    labels = torch.tensor([names.index(label) for _, label in good])
    whole = MemoryImages(torch.stack([picture for picture, _ in good]), labels, names)
    for_training, for_test = divide_by_class(labels, names, seed)
    return ImageFolder(whole.where(for_training), whole.where(for_test), skipped)


def list_folder(root: Path) -> list[tuple[Path, str]]:
    """Every picture in the subfolders, with its subfolder's name."""
    if not root.is_dir():
        raise TorchcapsError(
            f"{root} is no folder and no CSV file: give a folder with one subfolder of pictures per class"
        )
    classes = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    return [
        (path, folder.name)
        for folder in classes
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    ]


def list_table(table: Path) -> list[tuple[Path, str]]:
    """Every row of a CSV file; paths count from the file's own folder."""
    try:
        with table.open(newline="", encoding="utf-8-sig") as stream:
            rows = csv.DictReader(stream)
            if not {"path", "label"} <= set(rows.fieldnames or ()):
                raise TorchcapsError(f"{table} needs the columns 'path' and 'label' in its first line")
            pairs = [(row["path"], row["label"]) for row in rows]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise TorchcapsError(f"{table} cannot be read as a CSV file: {error}") from error
    for number, (path, label) in enumerate(pairs, start=2):
        if not path or not label:
            raise TorchcapsError(f"{table}, line {number}: path or label is empty")
    return [(table.parent / path, label) for path, label in pairs]


def read_picture(path: Path, *, boundary: Path, size: int, grey: bool) -> Tensor | str:
    """Bytes (C, size, size), or one sentence that says why not."""
    try:
        if not path.resolve().is_relative_to(boundary):
            return f"{path} leads out of {boundary}"
        if not path.is_file():  # opening a pipe would wait for ever
            return f"{path} is no file"
        with Image.open(path, formats=FORMATS) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                return f"{path} claims {picture.width}x{picture.height} pixels"
            upright = ImageOps.exif_transpose(picture)  # cameras note how they were held
            square = ImageOps.fit(upright.convert("L" if grey else "RGB"), (size, size), Image.Resampling.BILINEAR)
    # Pillow lets many kinds of errors through from damaged files (struct, zlib, syntax, index, memory).
    except Exception as error:
        return f"{path} cannot be read: {error}"
    pixels = torch.from_numpy(np.array(square))
    return pixels.unsqueeze(0) if grey else pixels.permute(2, 0, 1).contiguous()


def divide_by_class(labels: Tensor, names: Sequence[str], seed: int) -> tuple[Tensor, Tensor]:
    """Positions for training and for test: the same share of every class."""
    generator = torch.Generator().manual_seed(seed)
    training, test = [], []
    for label, name in enumerate(names):
        own = torch.nonzero(labels == label).flatten()
        if len(own) < 2:
            raise TorchcapsError(
                f"class '{name}' has one picture only: at least 2 are needed, for training and for test"
            )
        own = own[torch.randperm(len(own), generator=generator)]
        count = max(1, round(TEST_SHARE * len(own)))
        test.append(own[:count])
        training.append(own[count:])
    return torch.cat(training), torch.cat(test)


SETTINGS = ("size", "grey", "seed", "strict")


@functools.lru_cache(maxsize=1)  # training, test and listing ask for the same folder: read it once
def images_record(text: str) -> DatasetRecord:
    """The record of ``images:TEXT``: a folder or CSV file, and settings behind commas."""
    root, *parts = re.split(r",(?=\w+=)", text)
    chosen: dict[str, int] = {}
    for part in parts:
        name, _, value = part.partition("=")
        if name not in SETTINGS:
            raise unknown_name("setting of images", name, SETTINGS)
        if not value.isdecimal():
            raise TorchcapsError(f"'{part}' should be written {name}=NUMBER")
        chosen[name] = int(value)
    grey, strict = bool(chosen.get("grey", 0)), bool(chosen.get("strict", 0))
    folder = open_images(root, size=chosen.get("size", 32), grey=grey, seed=chosen.get("seed", 0), strict=strict)
    sets = {"train": folder.train, "test": folder.test}
    return DatasetRecord(
        name=f"images:{text}",
        description=f"your own pictures in {root}",
        shape=folder.train.shape,
        class_names=folder.train.class_names,
        splits={split: len(images) for split, images in sets.items()},
        licence="your own",
        citation=str(root),
        open=lambda split: sets[split],
        augmentation="shift=2,flip=0.5",
    )


datasets.families["images"] = images_record
