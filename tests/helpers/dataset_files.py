"""Write small files in the original dataset formats, without code of the readers."""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np


def pack(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path


def idx_bytes(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype("u1").tobytes()


def matrix_bytes(array: np.ndarray) -> bytes:
    magic = {"u1": 0x1E3D4C55, "i4": 0x1E3D4C54}[array.dtype.str[1:]]
    sizes = [*array.shape, *[1] * (3 - array.ndim)]
    return struct.pack(f"<Ii{len(sizes)}i", magic, array.ndim, *sizes) + array.tobytes()


def cifar_bytes(labels: np.ndarray, images: np.ndarray) -> bytes:
    return b"".join(bytes([label]) + image.tobytes() for label, image in zip(labels, images, strict=True))


def write_digits(folder: Path, train: int = 60, test: int = 40) -> None:
    """MNIST's four files with little squares; the label is written in the first pixel."""
    numbers = np.random.default_rng(0)
    for prefix, count in (("train", train), ("t10k", test)):
        labels = np.arange(count) % 10
        images = numbers.integers(1, 256, (count, 28, 28)).astype("u1")
        images[:, 0, 0] = labels
        pack(folder / f"{prefix}-images-idx3-ubyte.gz", idx_bytes(images))
        pack(folder / f"{prefix}-labels-idx1-ubyte.gz", idx_bytes(labels))


def write_toys(folder: Path, stem: str, count: int = 12, packed: bool = True) -> dict[str, np.ndarray]:
    """smallNORB's three files for one split, as small pictures."""
    numbers = np.random.default_rng(1)
    dat = numbers.integers(0, 256, (count, 2, 8, 8)).astype("u1")
    cat = (np.arange(count) % 5).astype("<i4")
    info = np.stack(
        [np.arange(count) % 10, np.arange(count) % 9, np.arange(count) % 18 * 2, np.arange(count) % 6], axis=1
    )
    arrays = {"dat": dat, "cat": cat, "info": info.astype("<i4")}
    for kind, array in arrays.items():
        pack(folder / f"{stem}-{kind}.mat{'.gz' if packed else ''}", matrix_bytes(array))
    return arrays


def element(order: str, kind: int, content: bytes, *, small: bool = False) -> bytes:
    if small and 0 < len(content) <= 4:
        return struct.pack(order + "I", len(content) << 16 | kind) + content.ljust(4, b"\0")
    return struct.pack(order + "II", kind, len(content)) + content + b"\0" * (-len(content) % 8)


def mat_array(order: str, array: np.ndarray, small: bool) -> bytes:
    kinds = {"u1": (9, 2), "f8": (6, 9), "i4": (12, 5), "u2": (11, 4)}
    array_class, stored = kinds[array.dtype.str[1:]]
    data = array.astype(array.dtype.newbyteorder(order)).tobytes(order="F")
    return element(
        order,
        14,
        element(order, 6, struct.pack(order + "II", array_class, 0))
        + element(order, 5, struct.pack(order + "2i", *array.shape))
        + element(order, 1, b"")
        + element(order, stored, data, small=small),
    )


def mat_bytes(
    name: str, fields: dict[str, np.ndarray], *, order: str = "<", packed: bool = True, small: bool = True
) -> bytes:
    """A MATLAB 5 file with one struct variable, compressed as MATLAB does by default."""
    width = 32
    labels = b"".join(field.encode().ljust(width, b"\0") for field in fields)
    body = (
        element(order, 6, struct.pack(order + "II", 2, 0))
        + element(order, 5, struct.pack(order + "2i", 1, 1))
        + element(order, 1, name.encode())
        + element(order, 5, struct.pack(order + "i", width), small=True)
        + element(order, 1, labels)
        + b"".join(mat_array(order, array, small) for array in fields.values())
    )
    variable = element(order, 14, body)
    if packed:
        squeezed = zlib.compress(variable)
        variable = struct.pack(order + "II", 15, len(squeezed)) + squeezed
    header = b"MATLAB 5.0 MAT-file".ljust(124, b" ") + struct.pack(order + "H", 0x0100)
    return header + (b"IM" if order == "<" else b"MI") + variable
