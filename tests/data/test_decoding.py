"""Pictures: upright, square, of the wanted size, and never more memory than the bound allows."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from torchcaps.data.decoding import UnreadableError, decode_square
from torchcaps.data.images import FORMATS
from torchcaps.errors import TorchcapsError

ALL = {"formats": FORMATS, "most_pixels": 1_000_000}


def written(picture: Image.Image, kind: str, **settings: object) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, kind, **settings)
    return stream.getvalue()


def halves(width: int, height: int) -> Image.Image:
    """The upper half red, the lower half blue."""
    pixels = np.zeros((height, width, 3), dtype="u1")
    pixels[: height // 2, :, 0] = pixels[height // 2 :, :, 2] = 255
    return Image.fromarray(pixels)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "WEBP", "TIFF", "PPM"])
@pytest.mark.parametrize("size", [8, 100])
def test_the_middle_square_in_the_wanted_size(kind: str, size: int) -> None:
    found = decode_square(written(halves(400, 200), kind), size=size, grey=False, **ALL)
    assert (found.shape, found.dtype) == ((3, size, size), torch.uint8)
    for channel, rows in ((0, slice(0, size // 2 - 1)), (2, slice(size // 2 + 1, size))):
        assert (found[channel, rows] > 245).all()
        assert (found[2 - channel, rows] < 10).all()


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_camera_that_was_held_sideways(kind: str) -> None:
    note = Image.Exif()
    note[0x0112] = 6  # to be turned a quarter to the right
    found = decode_square(written(halves(300, 300), kind, exif=note), size=10, grey=False, **ALL)
    assert (found[0, :, 6:] > 245).all()  # what was above is to the right
    assert (found[2, :, :4] > 245).all()


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
def test_grey_of_every_mode(mode: str) -> None:
    kind = "TIFF" if mode in ("CMYK", "I;16") else "PNG"
    found = decode_square(written(Image.new(mode, (20, 30)), kind), size=8, grey=True, **ALL)
    assert found.shape == (1, 8, 8)


@pytest.mark.parametrize(
    "settings", [{}, {"lossless": True}, {"exif": b"Exif\0\0"}, {"save_all": True}], ids=["VP8", "VP8L", "VP8X", "ANIM"]
)
def test_webp_takes_twice_the_memory_so_half_the_pixels(
    settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is refused before it is opened, which is when its decoder asks for memory."""
    if "save_all" in settings:
        settings = settings | {"append_images": [Image.new("RGB", (30, 20), "red")]}
    content = written(Image.new("RGB", (30, 20)), "WEBP", **settings)
    decode_square(content, size=8, grey=False, formats=FORMATS, most_pixels=1200)
    monkeypatch.delattr(Image, "open")
    with pytest.raises(TorchcapsError, match=r"^claims 30x20 pixels: at most 599 are taken$"):
        decode_square(content, size=8, grey=False, formats=FORMATS, most_pixels=1199)


def test_one_pixel_too_many() -> None:
    with pytest.raises(TorchcapsError, match=r"^claims 31x20 pixels: at most 619 are taken$"):
        decode_square(written(Image.new("L", (31, 20)), "PNG"), size=8, grey=True, formats=FORMATS, most_pixels=619)


def test_a_format_that_is_not_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(written(Image.new("L", (9, 9)), "TIFF"))
    with pytest.raises(UnreadableError, match=r"^cannot be read: "):
        decode_square(path, size=8, grey=True, formats=("PNG",), most_pixels=100)
