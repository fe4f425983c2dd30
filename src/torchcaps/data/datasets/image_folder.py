"""Your own pictures as a dataset: a folder with one subfolder per class, or a CSV file of paths and labels."""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchcaps.data.base import TensorImages
from torchcaps.data.datasets.image_folder_fit import Balance, Fit, class_balance, fit_pictures
from torchcaps.data.io.pictures import PictureSize, list_folder, list_table, read_pictures
from torchcaps.data.registry import DatasetRecord, datasets
from torchcaps.data.transforms import expand_preset
from torchcaps.errors import TorchcapsError, unknown_name

log = logging.getLogger(__name__)
FAMILY = "images"
SIZES = range(8, 513)
TEST_SHARE = 0.2


@dataclass(frozen=True)
class ImageFolder:
    """A folder of pictures, split for training and test; ``skipped`` lists the files left out, with the reason."""

    train: TensorImages
    test: TensorImages
    skipped: tuple[str, ...]
    digests: dict[str, str]

    @property
    def balance(self) -> Balance:
        """Number of pictures per class."""
        return class_balance(self.train, self.test)


def open_images(
    root: str | Path, *, size: PictureSize | None = None, grey: bool | None = None, seed: int = 0, strict: bool = False
) -> ImageFolder:
    """Read a folder or a CSV file of pictures; a fifth of each class, drawn by the seed, is for testing.

    The largest center part of each picture is scaled to ``size``, one number for a square, or height and width. By
    default, size and color mode are chosen from the pictures. Broken files and files outside the folder (through a link
    or "..") are skipped and listed, or raise an error if ``strict``.
    """
    whole, files, skipped = read_labeled(root, size=size, grey=grey, strict=strict)
    for_training, for_test = divide_by_class(whole.labels, whole.class_names, seed)
    labels = [whole.class_names[label] for label in whole.labels.tolist()]
    found = picture_digests(whole.images, labels, files)
    return ImageFolder(whole.where(for_training), whole.where(for_test), skipped, found)


def read_labeled(
    root: str | Path,
    *,
    size: PictureSize | None = None,
    grey: bool | None = None,
    strict: bool = False,
    fewest_classes: int = 2,
) -> tuple[TensorImages, list[str], tuple[str, ...]]:
    """Read all pictures of a folder or a CSV file; return them with their file names and the skipped files."""
    if size is not None and not all(side in SIZES for side in (size if isinstance(size, tuple) else (size,))):
        raise TorchcapsError(
            f"cannot bring pictures to {size_text(size)} pixels: choose {SIZES.start} to {SIZES.stop - 1}"
        )
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
    if len(names) < fewest_classes:
        raise TorchcapsError(
            f"{root} has pictures of {len(names)} classes, at least {fewest_classes} are needed: one subfolder for each"
        )
    labels = torch.tensor([names.index(label) for _, label, _ in good])
    base = root.parent if root.is_file() else root
    files = [Path(os.path.relpath(path, base)).as_posix() for _, _, path in good]
    return TensorImages(torch.stack([picture for picture, _, _ in good]), labels, names), files, skipped


def picture_digests(images: Tensor, labels: Sequence[str], files: Sequence[str]) -> dict[str, str]:
    """Compute digests that show whether the pictures changed, and how.

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
    """List every picture with its class."""
    return list_table(root) if root.is_file() else list_folder(root)


def divide_by_class(labels: Tensor, names: Sequence[str], seed: int) -> tuple[Tensor, Tensor]:
    """Split the indices into training and test, with the same share of every class, both shuffled."""
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
    # Shuffle, so that the first images of a split include all classes.
    parts = (torch.cat(training), torch.cat(test))
    first, second = (part[torch.randperm(len(part), generator=generator)] for part in parts)
    return first, second


SETTINGS = ("size", "grey", "seed", "strict")


def size_text(size: PictureSize) -> str:
    """Return a size as it is written in a name.

    >>> size_text(64), size_text((64, 48))
    ('64', '64x48')
    """
    return str(size) if isinstance(size, int) else f"{size[0]}x{size[1]}"


def parse_name(text: str) -> tuple[str, dict[str, Any]]:
    """Parse the text after ``images:`` into the folder or CSV file and the settings.

    >>> parse_name("photos,size=64x48,grey=1")
    ('photos', {'size': (64, 48), 'grey': 1})
    """
    root, *parts = re.split(r",(?=\w+=)", text)
    chosen: dict[str, Any] = {}
    for part in parts:
        name, _, value = part.partition("=")
        if name not in SETTINGS:
            raise unknown_name("setting of images", name, SETTINGS)
        sides = value.split("x") if name == "size" else [value]
        if len(sides) > 2 or not all(side.isdecimal() and len(side) < 10 for side in sides):
            wanted = "NUMBER, or size=HEIGHTxWIDTH" if name == "size" else "NUMBER"
            raise TorchcapsError(f"'{part}' should be written {name}={wanted}")
        chosen[name] = int(value) if len(sides) == 1 else (int(sides[0]), int(sides[1]))
    return root, chosen


def own_folder(data: str) -> Path | None:
    """Return the folder or CSV file of a dataset of one's own pictures, without opening it; None for other datasets."""
    family, _, text = data.partition(":")
    return Path(parse_name(text)[0]) if family == FAMILY else None


def display_name(data: str) -> str:
    """Return the name of a dataset for a heading: for the user's own images, the name of their folder.

    >>> display_name("images:/home/me/photos,size=64,grey=0"), display_name("mnist")
    ('photos', 'mnist')
    """
    folder = own_folder(data)
    return data if folder is None else folder.name


def relocated(data: str, root: Path) -> str:
    """Return the name of a dataset of one's own pictures after its folder was moved to ``root``.

    >>> relocated("images:/old/photos,size=64,grey=0", Path("/new"))
    'images:/new,size=64,grey=0'
    """
    old = parse_name(data.partition(":")[2])[0]
    return f"{FAMILY}:{Path(root).absolute()}{data.removeprefix(f'{FAMILY}:{old}')}"


@functools.lru_cache(maxsize=1)
def fit_folder(root: str) -> Fit:
    """Choose size and color mode for a folder or CSV file."""
    return fit_pictures([path for path, _ in list_entries(Path(root))])


@functools.lru_cache(maxsize=1)  # training, test and listing open the same folder
def read_once(root: str, size: PictureSize, grey: int, seed: int = 0, strict: int = 0) -> ImageFolder:
    """See :func:`open_images`."""
    return open_images(root, size=size, grey=bool(grey), seed=seed, strict=bool(strict))


def completed(text: str) -> tuple[str, dict[str, Any]]:
    """Like ``parse_name``, with size and color mode chosen where they are not given."""
    root, chosen = parse_name(text)
    if not {"size", "grey"} <= chosen.keys():
        fit = fit_folder(root)
        chosen = {"size": fit.size, "grey": int(fit.grey)} | chosen
    return root, chosen


def open_named(text: str) -> ImageFolder:
    """Open the dataset ``images:TEXT``."""
    root, chosen = completed(text)
    return read_once(root, **chosen)


def images_record(text: str) -> DatasetRecord:
    """Make the record of ``images:TEXT``; its name includes all settings, so that a run opens the same images again."""
    root, chosen = completed(text)
    folder = read_once(root, **chosen)
    sets = {"train": folder.train, "test": folder.test}
    settings = "".join(f",{name}={size_text(chosen[name])}" for name in SETTINGS if name in chosen)
    return DatasetRecord(
        name=f"{FAMILY}:{Path(root).absolute()}{settings}",  # absolute, so that a run works from any directory
        description=f"your own pictures in {root}",
        shape=folder.train.shape,
        class_names=folder.train.class_names,
        splits={split: len(images) for split, images in sets.items()},
        licence="your own",
        citation=root,
        open=lambda split: sets[split],
        digests=folder.digests,
        augmentation=expand_preset("light", min(folder.train.shape[1:])),
    )


datasets.families[FAMILY] = images_record
