"""Your own pictures as a dataset: a folder with one subfolder per class, or a CSV file with columns path and label.

As a dataset's name: ``images:FOLDER``, with settings behind commas: ``images:pets,size=48,grey=1,seed=3,strict=1``.
Without them the size, and grey or colour, are chosen to fit the pictures.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.data.balance import Balance, class_balance
from torchcaps.data.base import DatasetRecord, MemoryImages, datasets
from torchcaps.data.fitting import Fit, fit_pictures
from torchcaps.data.images import list_folder, list_table, read_pictures
from torchcaps.errors import TorchcapsError, unknown_name

log = logging.getLogger(__name__)
FAMILY = "images"
SIZES = range(8, 513)
TEST_SHARE = 0.2


@dataclass(frozen=True)
class ImageFolder:
    """A user's pictures, divided; ``skipped`` says which files were left out and why, ``digests`` see there."""

    train: MemoryImages
    test: MemoryImages
    skipped: tuple[str, ...]
    digests: dict[str, str]

    @property
    def balance(self) -> Balance:
        """Pictures of each class."""
        return class_balance(self.train, self.test)


def open_images(
    root: str | Path, *, size: int | None = None, grey: bool | None = None, seed: int = 0, strict: bool = False
) -> ImageFolder:
    """Read a folder or a CSV file of pictures; a fifth of each class, chosen by the seed, is for testing.

    Pictures keep their proportions: the largest middle square is scaled to ``size`` x ``size``, which is chosen to fit
    where it is not given, as grey or colour is. Broken files and files that lie outside the folder (through a link or
    "..") are skipped and listed, or stop everything if ``strict``.
    """
    if size is not None and size not in SIZES:
        raise TorchcapsError(f"cannot bring pictures to {size} pixels: choose {SIZES.start} to {SIZES.stop - 1}")
    root = Path(root)
    entries = list_entries(root)
    paths = [path for path, _ in entries]
    if size is None or grey is None:
        fit = fit_pictures(paths)
        size, grey = size or fit.size, fit.grey if grey is None else grey
    boundary = (root.parent if root.is_file() else root).resolve()
    pictures = read_pictures(paths, boundary=boundary, size=size, grey=grey)
    skipped = tuple(picture for picture in pictures if isinstance(picture, str))
    if skipped and strict:
        raise TorchcapsError(f"{len(skipped)} of {len(entries)} pictures cannot be used; the first: {skipped[0]}")
    for problem in skipped:
        log.warning("skipped: %s", problem)
    good = [
        (picture, label, path)
        for picture, (path, label) in zip(pictures, entries, strict=True)
        if not isinstance(picture, str)
    ]
    names = tuple(sorted({label for _, label, _ in good}))
    if len(names) < 2:
        raise TorchcapsError(
            f"{root} has pictures of {len(names)} classes, at least 2 are needed: one subfolder for each"
        )
    labels = torch.tensor([names.index(label) for _, label, _ in good])
    whole = MemoryImages(torch.stack([picture for picture, _, _ in good]), labels, names)
    for_training, for_test = divide_by_class(labels, names, seed)
    base = root.parent if root.is_file() else root
    files = [Path(os.path.relpath(path, base)).as_posix() for _, _, path in good]
    found = picture_digests(whole.images, [label for _, label, _ in good], files)
    return ImageFolder(whole.where(for_training), whole.where(for_test), skipped, found)


def picture_digests(images: Tensor, labels: Sequence[str], files: Sequence[str]) -> dict[str, str]:
    """Digests by which a change of the pictures is found, and which change it was.

    ``pictures`` depends on the pixels alone, ``labels`` on the class of each picture too, ``order`` also on the order
    of the files, which decides what is held out for the test; ``files`` depends on names and classes, not on pixels.

    Shapes: ``images`` (N, C, H, W) bytes.
    """
    pixels = [hashlib.sha256(image.numpy().data).hexdigest() for image in images]
    labeled = [f"{pixel} {label}" for pixel, label in zip(pixels, labels, strict=True)]
    named = [f"{file} {label}" for file, label in zip(files, labels, strict=True)]
    parts = {"pictures": sorted(pixels), "labels": sorted(labeled), "order": labeled, "files": named}
    return {name: hashlib.sha256("\n".join(lines).encode()).hexdigest() for name, lines in parts.items()}


def list_entries(root: Path) -> list[tuple[Path, str]]:
    """Every picture with its class."""
    return list_table(root) if root.is_file() else list_folder(root)


def divide_by_class(labels: Tensor, names: Sequence[str], seed: int) -> tuple[Tensor, Tensor]:
    """Positions for training and for test: the same share of every class, which then stand mixed."""
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
    # Whoever takes the first images of a part, as a quick look does, shall meet all classes.
    parts = (torch.cat(training), torch.cat(test))
    first, second = (part[torch.randperm(len(part), generator=generator)] for part in parts)
    return first, second


SETTINGS = ("size", "grey", "seed", "strict")


def parse_name(text: str) -> tuple[str, dict[str, int]]:
    """Of what stands behind ``images:``, the folder or CSV file and the settings."""
    root, *parts = re.split(r",(?=\w+=)", text)
    chosen: dict[str, int] = {}
    for part in parts:
        name, _, value = part.partition("=")
        if name not in SETTINGS:
            raise unknown_name("setting of images", name, SETTINGS)
        if not value.isdecimal():
            raise TorchcapsError(f"'{part}' should be written {name}=NUMBER")
        chosen[name] = int(value)
    return root, chosen


@functools.lru_cache(maxsize=1)
def fit_folder(root: str) -> Fit:
    """Size and colour that fit the pictures of a folder or CSV file."""
    return fit_pictures([path for path, _ in list_entries(Path(root))])


@functools.lru_cache(maxsize=1)  # training, test and listing ask for the same folder: read it once
def read_once(root: str, size: int, grey: int, seed: int = 0, strict: int = 0) -> ImageFolder:
    """See :func:`open_images`."""
    return open_images(root, size=size, grey=bool(grey), seed=seed, strict=bool(strict))


def completed(text: str) -> tuple[str, dict[str, int]]:
    """As ``parse_name``, with the size and colour that fit where none are named."""
    root, chosen = parse_name(text)
    if not {"size", "grey"} <= chosen.keys():
        fit = fit_folder(root)
        chosen = {"size": fit.size, "grey": int(fit.grey)} | chosen
    return root, chosen


def open_named(text: str) -> ImageFolder:
    """The pictures of the dataset ``images:TEXT``."""
    root, chosen = completed(text)
    return read_once(root, **chosen)


def images_record(text: str) -> DatasetRecord:
    """The record of ``images:TEXT``. Its name has all settings, so that a run finds the same pictures again."""
    root, chosen = completed(text)
    folder = read_once(root, **chosen)
    sets = {"train": folder.train, "test": folder.test}
    return DatasetRecord(
        name=f"{FAMILY}:{root}" + "".join(f",{name}={chosen[name]}" for name in SETTINGS if name in chosen),
        description=f"your own pictures in {root}",
        shape=folder.train.shape,
        class_names=folder.train.class_names,
        splits={split: len(images) for split, images in sets.items()},
        licence="your own",
        citation=root,
        open=lambda split: sets[split],
        digests=folder.digests,
        augmentation="shift=2,flip=0.5",
    )


datasets.families[FAMILY] = images_record
