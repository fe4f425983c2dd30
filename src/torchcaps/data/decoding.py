"""The one place where picture files are decoded: upright, square, of the wanted size, and never more than a bound."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from torchcaps.errors import TorchcapsError


class UnreadableError(TorchcapsError):
    """A picture that the decoder gave up."""


@contextlib.contextmanager
def open_picture(source: Path | bytes, *, formats: tuple[str, ...], most_pixels: int) -> Iterator[Image.Image]:
    """A picture that is not decoded yet, of a file or its content. Errors, also those inside, do not name it.

    A file of some bytes may claim to be a huge picture, so its claim is looked at before memory is asked for. Pillow
    keeps four bytes for a pixel, or eight while it changes its kind. Decoding WebP takes 16: half as many are let in.
    """
    try:
        with (
            warnings.catch_warnings(),
            io.BytesIO(source) if isinstance(source, bytes) else source.open("rb") as stream,
        ):
            warnings.simplefilter("ignore")  # Pillow warns of what is refused here
            _check(*_webp_size(stream.read(30)), most_pixels // 2)  # opening it is enough to ask for memory
            stream.seek(0)
            with Image.open(stream, formats=formats) as picture:
                _check(*picture.size, most_pixels)
                yield picture
    except TorchcapsError:
        raise
    except UnidentifiedImageError as error:  # whose words are about the stream
        raise UnreadableError("cannot be read: it is no picture, or its beginning is damaged") from error
    # Pillow lets many kinds of errors through from damaged files (struct, zlib, syntax, index, memory).
    except Exception as error:
        raise UnreadableError(f"cannot be read: {error}") from error


def decode_square(source: Path | bytes, *, size: int, grey: bool, formats: tuple[str, ...], most_pixels: int) -> Tensor:
    """The largest middle square of a picture, scaled: bytes (1 or 3, size, size).

    16-bit values are scaled by the picture's depth, floating-point values must lie between 0 and 1, and transparent
    pictures are composited on white. Values whose range the file does not tell are refused.
    """
    mode = "L" if grey else "RGB"
    with open_picture(source, formats=formats, most_pixels=most_pixels) as picture:
        picture.draft(mode, (2 * size, 2 * size))  # a JPEG file can be decoded at a fraction of its size
        clear = picture.info.get("transparency")
        if isinstance(clear, tuple) and any(";16" in str(tile[3]) for tile in getattr(picture, "tile", ())):
            picture.info["transparency"] = tuple(value >> 8 for value in clear)  # as Pillow reads 16-bit colors
        ImageOps.exif_transpose(picture, in_place=True)  # cameras note how they were held
        if picture.mode.startswith(("I", "F")):
            square = _deep_square(picture, size).convert(mode)
        elif "transparency" in picture.info or picture.mode in ("LA", "La", "PA", "RGBA", "RGBa"):
            square = _fit(picture.convert("RGBA"), size)  # Pillow weighs colors by their alpha
            square = Image.alpha_composite(Image.new("RGBA", square.size, "white"), square).convert(mode)
        else:
            square = _fit(picture if picture.mode == mode else picture.convert(mode), size)
    pixels = torch.from_numpy(np.array(square))
    return pixels.unsqueeze(0) if grey else pixels.permute(2, 0, 1).contiguous()


def _fit(picture: Image.Image, size: int) -> Image.Image:
    return ImageOps.fit(picture, (size, size), Image.Resampling.BILINEAR)


def _deep_square(picture: Image.Image, size: int) -> Image.Image:
    """The middle square of a grey picture with more than 8 bits per pixel, scaled to 8 bits."""
    tags = getattr(picture, "tag_v2", {})  # only TIFF files have these
    if picture.mode == "F":
        values = np.asarray(picture)
        low, high = values.min(), values.max()
        if not (low >= 0 and high <= 1):  # also where a value is not a number
            raise TorchcapsError(
                f"holds floating-point values from {low:g} to {high:g}: expected 0 to 1; scale them, or save the "
                "picture with 8 or 16 bits"
            )
        white = 1
    elif picture.mode == "I" and tags:  # elsewhere Pillow keeps 16 bits in this mode
        kind = f"signed {tags[258][0]}-bit" if tags.get(339) == (2,) else f"{tags[258][0]}-bit"
        raise TorchcapsError(f"holds {kind} integers, whose range is not known: save the picture with 8 or 16 bits")
    else:
        white = 2 ** tags.get(258, (16,))[0] - 1
    if isinstance(clear := picture.info.get("transparency"), int):
        values = np.array(picture)
        values[values == clear] = white
        picture = Image.fromarray(values)
    scaled = np.asarray(_fit(picture.convert("F"), size)) * (255 / white)
    if tags.get(262) == 0:  # zero is white, which Pillow inverts for 8 bits only
        scaled = 255 - scaled
    return Image.fromarray(scaled.round().clip(0, 255).astype(np.uint8))


def _check(width: int, height: int, most: int) -> None:
    if width * height > most:
        raise TorchcapsError(f"claims {width}x{height} pixels: at most {most:,} are taken")


def _webp_size(head: bytes) -> tuple[int, int]:
    """Width and height from the first bytes of a WebP file, in any of its three forms; zeros for all other files."""
    if head[:4] != b"RIFF" or head[8:12] != b"WEBP":
        return 0, 0
    kind, content = head[12:16], head[20:30]
    if kind == b"VP8X":
        return 1 + int.from_bytes(content[4:7], "little"), 1 + int.from_bytes(content[7:10], "little")
    if kind == b"VP8L":
        both = int.from_bytes(content[1:5], "little")
        return 1 + (both & 0x3FFF), 1 + (both >> 14 & 0x3FFF)
    return int.from_bytes(content[6:8], "little") & 0x3FFF, int.from_bytes(content[8:10], "little") & 0x3FFF
