"""The one place where picture files are decoded: upright, square, of the wanted size, and never more than a bound."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from torchcaps.errors import TorchcapsError


class UnreadableError(TorchcapsError):
    """A picture that the decoder gave up."""


def decode_square(
    source: Path | BinaryIO, *, size: int, grey: bool, formats: Sequence[str], most_pixels: int
) -> Tensor:
    """The largest middle square of a picture, scaled: bytes (1 or 3, size, size). Errors do not name the picture.

    A file of some bytes may claim to be a huge picture, so its claim is looked at before memory is asked for. Pillow
    keeps four bytes for a pixel, in colour; what else needs a copy of the whole picture is avoided where it can be, so
    that a picture takes 4 to 8 bytes for each of its pixels. Decoding WebP takes 16: half as many are let in.
    """
    mode = "L" if grey else "RGB"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of what is refused two lines below
            with Image.open(source, formats=formats) as picture:
                most = most_pixels // 2 if picture.format == "WEBP" else most_pixels
                if picture.width * picture.height > most:
                    raise TorchcapsError(f"claims {picture.width}x{picture.height} pixels: at most {most:,} are taken")
                picture.draft(mode, (2 * size, 2 * size))  # a JPEG file can be decoded at a fraction of its size
                ImageOps.exif_transpose(picture, in_place=True)  # cameras note how they were held
                coloured = picture if picture.mode == mode else picture.convert(mode)
                square = ImageOps.fit(coloured, (size, size), Image.Resampling.BILINEAR)
    except TorchcapsError:
        raise
    # Pillow lets many kinds of errors through from damaged files (struct, zlib, syntax, index, memory).
    except Exception as error:
        raise UnreadableError(f"cannot be read: {error}") from error
    pixels = torch.from_numpy(np.array(square))
    return pixels.unsqueeze(0) if grey else pixels.permute(2, 0, 1).contiguous()
