"""Your own pictures as a dataset: a folder with one subfolder per class, or a CSV file of paths and labels."""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchcaps.data.base import TensorImages
from torchcaps.data.io.pictures import (
    FORMATS,
    MOST_PIXELS,
    PictureSize,
    list_folder,
    list_table,
    open_picture,
    read_pictures,
)
from torchcaps.data.registry import DatasetRecord, datasets
from torchcaps.data.transforms import expand_preset
from torchcaps.errors import TorchcapsError, unknown_name

FEW = 20  # training pictures of a class; with fewer, accuracy is mostly chance
IMBALANCE = 3.0  # ratio of the largest class to the smallest
NAMED = 5  # classes listed in one warning


@dataclass(frozen=True)
class Balance:
    """Number of pictures per class in the training and the test split."""

    names: tuple[str, ...]
    train: tuple[int, ...]
    test: tuple[int, ...]

    @property
    def guess(self) -> float:
        """Test accuracy of always predicting the most common training class."""
        commonest = self.train.index(max(self.train))
        return self.test[commonest] / sum(self.test)

    def warnings(self) -> list[str]:
        """Return a sentence for each imbalance: classes with few pictures, and very different class sizes."""
        said = []
        few = [f"'{name}' ({count})" for name, count in zip(self.names, self.train, strict=True) if count < FEW]
        if few:
            more = f" and {len(few) - NAMED} more" if len(few) > NAMED else ""
            said.append(
                f"classes with fewer than {FEW} training images: {', '.join(few[:NAMED])}{more}. Their accuracy is "
                "mostly chance: add images, or leave the class out"
            )
        if max(self.train) > IMBALANCE * min(self.train):
            most, least = (self.train.index(pick(self.train)) for pick in (max, min))
            said.append(
                f"the classes are imbalanced: '{self.names[most]}' has {self.train[most]} training images, "
                f"'{self.names[least]}' has {self.train[least]}. Always predicting '{self.names[most]}' gives a test "
                f"accuracy of {self.guess:.0%}: compare with that; --balance weights or sample can help"
            )
        return said


def class_balance(train: TensorImages, test: TensorImages) -> Balance:
    """Count the pictures per class in both splits."""
    counts = (torch.bincount(each.labels, minlength=len(each.class_names)).tolist() for each in (train, test))
    of_train, of_test = (tuple(each) for each in counts)
    return Balance(train.class_names, of_train, of_test)


LOOK_AT = 500  # pictures whose headers are read
# From the smallest size that every model accepts to the largest that a laptop trains in minutes.
SIDES = (28, 32, 40, 48, 64, 96, 128)
MOST_BYTES = 1 << 30  # of all pictures in memory; a larger set gets smaller pictures
GREY_MODES = ("1", "L", "LA", "I", "I;16", "I;16B", "F")


@dataclass(frozen=True)
class Fit:
    """The chosen image size, whether the images are grayscale, and the reason for the size."""

    size: int
    grey: bool
    reason: str


def fit_pictures(paths: Sequence[Path]) -> Fit:
    """Choose the largest of SIDES that the median picture fills; grayscale if all pictures are."""
    found = [seen for path in paths[:: max(1, len(paths) // LOOK_AT)] if (seen := _header(path))]
    if not found:
        return Fit(SIDES[0], False, "none of them tells its size")
    shorter = [side for side, _ in found]
    middle = int(statistics.median_low(shorter))
    size = max((side for side in SIDES if side <= middle), default=SIDES[0])
    grey = all(mode in GREY_MODES for _, mode in found)
    fitting = [side for side in SIDES if len(paths) * side**2 * (1 if grey else 3) <= MOST_BYTES]
    if size > max(fitting, default=SIDES[0]):
        size = max(fitting, default=SIDES[0])
        return Fit(size, grey, f"the most that keeps {len(paths):,} of them in a gigabyte of memory")
    if middle < SIDES[0]:
        why = f"the least that every model takes; half of them have a shorter side of at most {middle} pixels"
    elif size == SIDES[-1]:
        why = f"the most that trains in minutes; half of them have a shorter side of at least {middle} pixels"
    else:
        why = f"half of them have a shorter side of at least {middle} pixels"
    return Fit(size, grey, why)


def _header(path: Path) -> tuple[int, str] | None:
    """Read the shorter side and the mode of a picture without decoding it; None if the header is unreadable."""
    try:
        if not path.is_file():  # opening a pipe would block forever
            return None
        with open_picture(path, formats=FORMATS, most_pixels=MOST_PIXELS) as picture:
            return min(picture.size), picture.mode
    except (TorchcapsError, OSError):  # the reader reports the reason
        return None


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
