"""A user's pictures: which ones a folder or a CSV file names, and how one of them is read."""

from __future__ import annotations

import csv
import functools
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from torch import Tensor

from torchcaps.data.decoding import decode_square
from torchcaps.errors import TorchcapsError
from torchcaps.files import printable
from torchcaps.progress import progress_bar

# Only formats that Pillow decodes by itself: some others start a helper program.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
MOST_PIXELS = 50_000_000  # more than cameras take; each of the threads that read may need 400 MB for such a picture


def list_folder(root: Path) -> list[tuple[Path, str]]:
    """Every picture in the subfolders, with its subfolder's name."""
    if not root.is_dir():
        raise TorchcapsError(
            f"{root} is no folder and no CSV file: give a folder with one subfolder of pictures per class"
        )
    classes = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    for folder in classes:
        if re.search("[\ud800-\udfff]", folder.name):  # how Python marks bytes that are no UTF-8
            raise TorchcapsError(f"the folder {printable(str(folder))} has a name that is no text: rename it")
    return [(path, folder.name) for folder in classes for path in sorted(folder.iterdir()) if is_picture(path)]


def is_picture(path: Path) -> bool:
    """Whether a file's name is that of a picture; hidden ones are not meant."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


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


def picture_form(shape: tuple[int, int, int]) -> tuple[int, bool]:
    """Side of the square, and whether in grey, to which pictures are brought for a model of this image shape."""
    channels, height, width = shape
    if channels not in (1, 3) or height != width:
        raise TorchcapsError(
            f"a picture becomes a square in grey or in three colours, and the model wants {shape} (channels, height, "
            "width): use images of the dataset that it was trained on"
        )
    return height, channels == 1


def read_pictures(paths: Sequence[Path], *, boundary: Path | None, size: int, grey: bool) -> list[Tensor | str]:
    """What ``read_picture`` gives for each, in their order, read by several threads."""
    read = functools.partial(read_picture, boundary=boundary, size=size, grey=grey)
    pictures: list[Tensor | str] = []
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool, progress_bar("reading pictures", len(paths)) as bar:
        for picture in pool.map(read, paths):
            pictures.append(picture)
            bar(1)
    return pictures


def read_picture(path: Path, *, boundary: Path | None, size: int, grey: bool) -> Tensor | str:
    """Bytes (C, size, size), or one sentence that says why not; None as boundary: wherever a link may lead."""
    try:
        if boundary is not None and not path.resolve().is_relative_to(boundary):
            return f"{path} leads out of {boundary}"
        if not path.is_file():  # opening a pipe would wait for ever
            return f"{path} is no file"
        return decode_square(path, size=size, grey=grey, formats=FORMATS, most_pixels=MOST_PIXELS)
    except TorchcapsError as error:
        return f"{path} {error}"
    except (OSError, RuntimeError) as error:  # links in a circle, and names that no system takes
        return f"{path} cannot be read: {error}"
