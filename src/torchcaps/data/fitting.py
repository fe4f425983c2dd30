"""To which size a user's pictures are brought, and whether in grey: decided by a look at their headers."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchcaps.data.decoding import open_picture
from torchcaps.data.images import FORMATS, MOST_PIXELS
from torchcaps.errors import TorchcapsError

LOOK_AT = 500  # pictures, from all over the folder
# The least that every model takes, and the most that a laptop trains in minutes: time grows with the area.
SIDES = (28, 32, 40, 48)
GREY_MODES = ("1", "L", "LA", "I", "I;16", "I;16B", "F")


@dataclass(frozen=True)
class Fit:
    """Pixels of a side, whether in grey, and in a few words why this size."""

    size: int
    grey: bool
    reason: str


def fit_pictures(paths: Sequence[Path]) -> Fit:
    """The largest of SIDES that the middle one of the pictures fills, in grey if all of them are."""
    found = [seen for path in paths[:: max(1, len(paths) // LOOK_AT)] if (seen := _header(path))]
    if not found:
        return Fit(SIDES[0], False, "none of them tells its size")
    shorter = [side for side, _ in found]
    middle = int(statistics.median_low(shorter))
    size = max((side for side in SIDES if side <= middle), default=SIDES[0])
    grey = all(mode in GREY_MODES for _, mode in found)
    if middle < SIDES[0]:
        why = f"the least that every model takes; half of them have a shorter side of at most {middle} pixels"
    elif size == SIDES[-1]:
        why = f"the most that trains in minutes; half of them have a shorter side of at least {middle} pixels"
    else:
        why = f"half of them have a shorter side of at least {middle} pixels"
    return Fit(size, grey, why)


def _header(path: Path) -> tuple[int, str] | None:
    """Shorter side and mode of a picture, without decoding it; None if it tells nothing."""
    try:
        if not path.is_file():  # opening a pipe would wait for ever
            return None
        with open_picture(path, formats=FORMATS, most_pixels=MOST_PIXELS) as picture:
            return min(picture.size), picture.mode
    except (TorchcapsError, OSError):  # reading says why
        return None
