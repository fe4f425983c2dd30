"""Find picture files and decode them to images of one size, with a limit on the number of pixels."""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.files import printable
from torchcaps.progress import progress_bar


class UnreadableError(TorchcapsError):
    """A picture that cannot be decoded."""


@contextlib.contextmanager
def open_picture(source: Path | bytes, *, formats: tuple[str, ...], most_pixels: int) -> Iterator[Image.Image]:
    """Open a picture from a path or from bytes, without decoding it. Error messages do not contain the path.

    A small file may claim huge dimensions, so they are checked before memory is allocated. Pillow needs four bytes per
    pixel, eight during a mode conversion, and 16 to decode WebP: WebP files may have half as many pixels.
    """
    try:
        with (
            warnings.catch_warnings(),
            io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as stream,
        ):
            warnings.simplefilter("ignore")  # Pillow's decompression bomb warnings: checked here
            _check(*_webp_size(stream.read(30)), most_pixels // 2)  # Image.open already allocates memory for WebP
            stream.seek(0)
            with Image.open(stream, formats=formats) as picture:
                _check(*picture.size, most_pixels)
                yield picture
    except TorchcapsError:
        raise
    except UnidentifiedImageError as error:  # its message names the stream object
        raise UnreadableError("cannot be read: it is not a picture, or its header is damaged") from error
    except Exception as error:  # Pillow raises many types for damaged files: struct, zlib, syntax, index, memory
        raise UnreadableError(f"cannot be read: {error}") from error


PictureSize = int | tuple[int, int]  # a square, or height and width


def decode_picture(
    source: Path | bytes, *, size: PictureSize, grey: bool, formats: tuple[str, ...], most_pixels: int
) -> Tensor:
    """Decode the largest center part of a picture with the wanted aspect ratio, resized: uint8 (1 or 3, H, W).

    16-bit values are scaled by the bit depth, floating-point values must be in [0, 1], and transparent pictures are
    composited on white. Pictures with an unknown value range are rejected.
    """
    mode = "L" if grey else "RGB"
    height, width = (size, size) if isinstance(size, int) else size
    with open_picture(source, formats=formats, most_pixels=most_pixels) as picture:
        picture.draft(mode, (2 * width, 2 * height))  # decode a JPEG at a reduced size
        clear = picture.info.get("transparency")
        if isinstance(clear, tuple) and any(";16" in str(tile[3]) for tile in getattr(picture, "tile", ())):
            picture.info["transparency"] = tuple(value >> 8 for value in clear)  # Pillow reads 16-bit colors as 8-bit
        ImageOps.exif_transpose(picture, in_place=True)
        if picture.mode.startswith(("I", "F")):
            fitted = _deep_picture(picture, (width, height)).convert(mode)
        elif "transparency" in picture.info or picture.mode in ("LA", "La", "PA", "RGBA", "RGBa"):
            fitted = _fit(picture.convert("RGBA"), (width, height))  # Pillow resizes with premultiplied alpha
            fitted = Image.alpha_composite(Image.new("RGBA", fitted.size, "white"), fitted).convert(mode)
        else:
            fitted = _fit(picture if picture.mode == mode else picture.convert(mode), (width, height))
    pixels = torch.from_numpy(np.array(fitted))
    return pixels.unsqueeze(0) if grey else pixels.permute(2, 0, 1).contiguous()


def _fit(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    return ImageOps.fit(picture, size, Image.Resampling.BILINEAR)


def _deep_picture(picture: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Return the center of a grayscale picture with more than 8 bits per pixel, converted to 8 bits."""
    tags = getattr(picture, "tag_v2", {})  # TIFF only
    if picture.mode == "F":
        values = np.asarray(picture)
        low, high = values.min(), values.max()
        if not (low >= 0 and high <= 1):  # NaN fails this too
            raise TorchcapsError(
                f"holds floating-point values from {low:g} to {high:g}: expected 0 to 1; scale them, or save the "
                "picture with 8 or 16 bits"
            )
        white = 1
    elif picture.mode == "I" and tags:  # other formats use this mode for 16-bit values
        kind = f"signed {tags[258][0]}-bit" if tags.get(339) == (2,) else f"{tags[258][0]}-bit"
        raise TorchcapsError(f"holds {kind} integers, whose range is not known: save the picture with 8 or 16 bits")
    else:
        white = 2 ** tags.get(258, (16,))[0] - 1
    if isinstance(clear := picture.info.get("transparency"), int):
        values = np.array(picture)
        values[values == clear] = white
        picture = Image.fromarray(values)
    scaled = np.asarray(_fit(picture.convert("F"), size)) * (255 / white)
    if tags.get(262) == 0:  # WhiteIsZero, which Pillow inverts for 8 bits only
        scaled = 255 - scaled
    return Image.fromarray(scaled.round().clip(0, 255).astype(np.uint8))


def _check(width: int, height: int, most: int) -> None:
    if width * height > most:
        raise TorchcapsError(f"claims {width}x{height} pixels: at most {most:,} are allowed")


def _webp_size(head: bytes) -> tuple[int, int]:
    """Read width and height from the header of a WebP file (VP8, VP8L or VP8X); zeros for other formats."""
    if head[:4] != b"RIFF" or head[8:12] != b"WEBP":
        return 0, 0
    kind, content = head[12:16], head[20:30]
    if kind == b"VP8X":
        return 1 + int.from_bytes(content[4:7], "little"), 1 + int.from_bytes(content[7:10], "little")
    if kind == b"VP8L":
        both = int.from_bytes(content[1:5], "little")
        return 1 + (both & 0x3FFF), 1 + (both >> 14 & 0x3FFF)
    return int.from_bytes(content[6:8], "little") & 0x3FFF, int.from_bytes(content[8:10], "little") & 0x3FFF


# Only formats that Pillow decodes itself: for some others it starts an external program.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
MOST_PIXELS = 50_000_000  # each reader thread may need 400 MB for a picture of this size


def list_folder(root: Path) -> list[tuple[Path, str]]:
    """List every picture in the subfolders with the name of its subfolder."""
    if not root.is_dir():
        raise TorchcapsError(
            f"{root} is neither a folder nor a CSV file: give a folder with one subfolder of pictures per class"
        )
    classes = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    for folder in classes:
        if re.search("[\ud800-\udfff]", folder.name):  # surrogate escapes: the name is not valid UTF-8
            raise TorchcapsError(f"the folder {printable(str(folder))} has a name that is not valid UTF-8: rename it")
    return [(path, folder.name) for folder in classes for path in sorted(folder.iterdir()) if is_picture(path)]


def is_picture(path: Path) -> bool:
    """Return whether a file has a picture's suffix and is not hidden."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def list_table(table: Path) -> list[tuple[Path, str]]:
    """List the (path, label) rows of a CSV file; paths are relative to its folder."""
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


def picture_form(shape: tuple[int, int, int]) -> tuple[tuple[int, int], bool]:
    """Return height and width, and whether pictures are grayscale, for a model with this image shape."""
    channels, height, width = shape
    if channels not in (1, 3):
        raise TorchcapsError(
            f"pictures are read as grayscale or RGB images, but the model expects {shape} (channels, height, "
            "width): use images of the dataset that it was trained on"
        )
    return (height, width), channels == 1


def read_pictures(paths: Sequence[Path], *, boundary: Path | None, size: PictureSize, grey: bool) -> list[Tensor | str]:
    """Call ``read_picture`` for each path in several threads; results keep the order of the paths."""
    read = functools.partial(read_picture, boundary=boundary, size=size, grey=grey)
    pictures: list[Tensor | str] = []
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool, progress_bar("reading pictures", len(paths)) as bar:
        for picture in pool.map(read, paths):
            pictures.append(picture)
            bar(1)
    return pictures


def read_picture(path: Path, *, boundary: Path | None, size: PictureSize, grey: bool) -> Tensor | str:
    """Return a uint8 image (C, H, W), or an error message.

    The path must resolve to a file inside ``boundary``; None allows any.
    """
    try:
        if boundary is not None and not path.resolve().is_relative_to(boundary):
            return f"{path} is outside {boundary}"
        if not path.is_file():  # opening a pipe would block forever
            return f"{path} is not a file"
        return decode_picture(path, size=size, grey=grey, formats=FORMATS, most_pixels=MOST_PIXELS)
    except TorchcapsError as error:
        return f"{path} {error}"
    except (OSError, RuntimeError) as error:  # circular links and invalid file names
        return f"{path} cannot be read: {error}"
