"""Size, color mode and class balance of your own pictures: what is chosen for a folder, and its warnings."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from torchcaps.data.base import TensorImages
from torchcaps.data.io.pictures import FORMATS, MOST_PIXELS, open_picture
from torchcaps.errors import TorchcapsError

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
