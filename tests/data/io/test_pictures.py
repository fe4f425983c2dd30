"""Decoding of images: orientation, cropping, resizing, modes, and bounded memory."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from torchcaps.data.io.pictures import FORMATS, UnreadableError, decode_picture
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
def test_the_center_square_is_resized(kind: str, size: int) -> None:
    found = decode_picture(written(halves(400, 200), kind), size=size, grey=False, **ALL)
    assert (found.shape, found.dtype) == ((3, size, size), torch.uint8)
    for channel, rows in ((0, slice(0, size // 2 - 1)), (2, slice(size // 2 + 1, size))):
        assert (found[channel, rows] > 245).all()
        assert (found[2 - channel, rows] < 10).all()


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_exif_orientation_is_applied(kind: str) -> None:
    note = Image.Exif()
    note[0x0112] = 6  # to be turned a quarter to the right
    found = decode_picture(written(halves(300, 300), kind, exif=note), size=10, grey=False, **ALL)
    assert (found[0, :, 6:] > 245).all()  # what was above is to the right
    assert (found[2, :, :4] > 245).all()


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
def test_gray_images_of_every_mode(mode: str) -> None:
    kind = "TIFF" if mode in ("CMYK", "I;16") else "PNG"
    found = decode_picture(written(Image.new(mode, (20, 30)), kind), size=8, grey=True, **ALL)
    assert found.shape == (1, 8, 8)


@pytest.mark.parametrize(
    "settings", [{}, {"lossless": True}, {"exif": b"Exif\0\0"}, {"save_all": True}], ids=["VP8", "VP8L", "VP8X", "ANIM"]
)
def test_webp_takes_twice_the_memory_so_half_the_pixels(
    settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The image is rejected before its decoder allocates memory."""
    if "save_all" in settings:
        settings = settings | {"append_images": [Image.new("RGB", (30, 20), "red")]}
    content = written(Image.new("RGB", (30, 20)), "WEBP", **settings)
    decode_picture(content, size=8, grey=False, formats=FORMATS, most_pixels=1200)
    monkeypatch.delattr(Image, "open")
    with pytest.raises(TorchcapsError, match=r"^claims 30x20 pixels: at most 599 are allowed$"):
        decode_picture(content, size=8, grey=False, formats=FORMATS, most_pixels=1199)


def test_one_pixel_too_many() -> None:
    with pytest.raises(TorchcapsError, match=r"^claims 31x20 pixels: at most 619 are allowed$"):
        decode_picture(written(Image.new("L", (31, 20)), "PNG"), size=8, grey=True, formats=FORMATS, most_pixels=619)


def test_formats_that_are_not_allowed(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(written(Image.new("L", (9, 9)), "TIFF"))
    with pytest.raises(UnreadableError, match=r"^cannot be read: "):
        decode_picture(path, size=8, grey=True, formats=("PNG",), most_pixels=100)


RAMP = np.arange(64, dtype="u1").reshape(8, 8) * 4  # every pixel another value


def decoded(content: bytes, grey: bool = True) -> np.ndarray:
    return decode_picture(content, size=8, grey=grey, **ALL).numpy()


def tiff(values: np.ndarray, *, bits: int, photometric: int = 1, sample_format: int = 1) -> bytes:
    """An uncompressed little-endian TIFF file of one channel, of kinds that Pillow does not write."""
    height, width = values.shape
    if bits == 12:
        first, second = values.reshape(-1, 2).astype("u2").T  # two pixels in three bytes, high bits first
        data = np.stack([first >> 4, (first & 15) << 4 | second >> 8, second & 255], axis=1).astype("u1").tobytes()
    else:
        data = values.tobytes()
    entries = {256: width, 257: height, 258: bits, 259: 1, 262: photometric, 277: 1, 278: height, 339: sample_format}
    entries |= {273: 8 + 2 + 12 * (len(entries) + 2) + 4, 279: len(data)}
    directory = b"".join(struct.pack("<HHII", tag, 4, 1, entries[tag]) for tag in sorted(entries))
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + directory + bytes(4) + data


DEEP = {
    "PNG": lambda: written(Image.fromarray(RAMP.astype("u2") * 257), "PNG"),
    "TIFF": lambda: written(Image.fromarray(RAMP.astype("u2") * 257), "TIFF"),
    "TIFF, big-endian": lambda: written(Image.fromarray((RAMP.astype("u2") * 257).astype(">u2")), "TIFF"),
    "TIFF, white is zero": lambda: tiff(65535 - RAMP.astype("u2") * 257, bits=16, photometric=0),
    "TIFF, 12 bits": lambda: tiff(np.round(RAMP * (4095 / 255)).astype("u2"), bits=12),
    "PGM": lambda: b"P5 8 8 65535\n" + (RAMP.astype(">u2") * 257).tobytes(),
    "PGM, maximum 1023": lambda: b"P5 8 8 1023\n" + np.round(RAMP * (1023 / 255)).astype(">u2").tobytes(),
    "float TIFF": lambda: written(Image.fromarray((RAMP / 255).astype("f4")), "TIFF"),
    "float TIFF, white is zero": lambda: tiff((1 - RAMP / 255).astype("f4"), bits=32, photometric=0, sample_format=3),
}


@pytest.mark.parametrize("grey", [True, False])
@pytest.mark.parametrize("kind", DEEP)
def test_deep_pictures_are_scaled_by_their_depth(kind: str, grey: bool) -> None:
    found = decoded(DEEP[kind](), grey)
    for channel in found:
        np.testing.assert_array_equal(channel, RAMP)


def test_a_deep_picture_is_resized_before_it_is_rounded() -> None:
    values = np.zeros((16, 16), dtype="u2")
    values[::2] = 300  # about 1.17 of 255; the mean is 0.58
    assert set(decoded(written(Image.fromarray(values), "PNG")).ravel()) == {1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: written(Image.fromarray(RAMP.astype("f4")), "TIFF"), r"^holds floating-point values from 0 to 252: "),
        (
            lambda: written(Image.fromarray(RAMP / np.float32(255) - 1), "TIFF"),
            r"^holds floating-point values from -1 to",
        ),
        (lambda: written(Image.fromarray(np.full((8, 8), np.nan, "f4")), "TIFF"), r"from nan to nan: "),
        (lambda: tiff(RAMP.astype("u4"), bits=32), r"^holds 32-bit integers"),
        (lambda: tiff(RAMP.astype("i2"), bits=16, sample_format=2), r"^holds signed 16-bit integers"),
    ],
    ids=["float above 1", "float below 0", "not a number", "32-bit integers", "signed integers"],
)
def test_values_of_unknown_range_are_refused(content: Callable[[], bytes], message: str) -> None:
    with pytest.raises(TorchcapsError, match=message):
        decoded(content())


def transparent(mode: str, kind: str) -> bytes:
    """A black square in the upper left quarter; everything else is black too, but fully transparent."""
    alpha = np.zeros((8, 8), dtype="u1")
    alpha[:4, :4] = 255
    picture = Image.new("RGBA", (8, 8))
    picture.putalpha(Image.fromarray(alpha))
    if mode == "P":
        indices = Image.fromarray((alpha == 0).astype("u1"), "P")
        indices.putpalette([0] * 6)
        return written(indices, kind, transparency=1 if kind == "GIF" else bytes([255, 0]))
    if mode in ("L", "RGB"):  # one value of the picture counts as transparent
        picture = Image.fromarray(np.where(alpha == 0, 9, 0).astype("u1")).convert(mode)
        return written(picture, kind, transparency=9 if mode == "L" else (9, 9, 9))
    if mode == "I;16":
        return written(Image.fromarray(np.where(alpha == 0, 90, 0).astype("u2")), kind, transparency=90)
    return written(picture.convert(mode), kind, **({"lossless": True, "exact": True} if kind == "WEBP" else {}))


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        *((mode, "PNG") for mode in ("RGBA", "LA", "P", "L", "RGB", "I;16")),
        *(("RGBA", kind) for kind in ("WEBP", "TIFF")),
        ("P", "GIF"),
    ],
)
@pytest.mark.parametrize("grey", [True, False])
def test_transparent_pixels_are_white(mode: str, kind: str, grey: bool) -> None:
    found = decoded(transparent(mode, kind), grey)
    assert (found[:, :4, :4] == 0).all()
    assert (found[:, 4:] == 255).all()
    assert (found[:, :, 4:] == 255).all()


def test_half_transparent_red_is_pink_and_hidden_colors_do_not_bleed() -> None:
    pixels = np.zeros((64, 64, 4), dtype="u1")
    pixels[..., 1] = 255  # green that nobody sees
    pixels[:32] = (255, 0, 0, 128)
    found = decoded(written(Image.fromarray(pixels), "PNG"), grey=False)
    assert found[:, 1, 3].tolist() == [255, 127, 127]
    assert found[:, 6, 3].tolist() == [255, 255, 255]
    assert (found[0] >= found[1]).all()


def test_a_transparent_color_of_16_bits() -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    values = np.full((8, 8, 3), 30000, dtype=">u2")
    values[4:] = 0x0203
    rows = b"".join(b"\0" + row.tobytes() for row in values)
    header, clear = struct.pack(">IIBBBBB", 8, 8, 16, 2, 0, 0, 0), struct.pack(">HHH", *[0x0203] * 3)
    chunks = {b"IHDR": header, b"tRNS": clear, b"IDAT": zlib.compress(rows), b"IEND": b""}
    found = decoded(b"\x89PNG\r\n\x1a\n" + b"".join(map(chunk, chunks, chunks.values())))
    assert found[0, :, 0].tolist() == [117] * 4 + [255] * 4
