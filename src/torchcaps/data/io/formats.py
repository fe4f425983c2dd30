"""Readers of array files: IDX (MNIST), binary matrices (NORB) and MATLAB 5 structs (affNIST).

Headers are not trusted: sizes are checked against the actual number of bytes before memory is allocated.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, cast

import numpy as np
import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError

CHUNK = 1 << 20
LARGEST = 1 << 31  # bytes; a header that claims more is refused before anything is read


def open_unpacked(path: Path) -> IO[bytes]:
    """Open a file for reading, decompressed if its name ends in .gz."""
    return cast(IO[bytes], gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def read_rest(stream: IO[bytes], count: int, path: Path) -> bytearray:
    """Read the rest of a stream, which must be exactly ``count`` bytes.

    Memory grows chunk by chunk with the actual content, whatever the header claims.
    """
    if count > LARGEST:
        raise TorchcapsError(f"{path} claims {count} bytes, more than any dataset here: refused")
    content = bytearray()
    while chunk := stream.read(min(CHUNK, count + 1 - len(content))):
        content += chunk
    if len(content) != count:
        found = f"{len(content)}" if len(content) < count else "more"
        raise TorchcapsError(f"{path} should hold {count} bytes after its header, found {found}")
    return content


UNSIGNED_BYTE = 8


def read_idx(path: Path, dimensions: int) -> Tensor:
    """Read an IDX file: a magic number, big-endian sizes, then bytes; decompressed if its name ends in .gz.

    The content must have exactly the length given in the header.
    """
    try:
        with open_unpacked(path) as stream:
            header = stream.read(4 + 4 * dimensions)
            if len(header) < 4 + 4 * dimensions:
                raise TorchcapsError(f"{path} is too short for an IDX file: {len(header)} bytes")
            magic = tuple(header[:4])
            if magic != (0, 0, UNSIGNED_BYTE, dimensions):
                raise TorchcapsError(
                    f"{path} is not an IDX file of {dimensions}-dimensional bytes: "
                    f"expected it to begin with 0 0 {UNSIGNED_BYTE} {dimensions}, found {' '.join(map(str, magic))}"
                )
            shape = struct.unpack(f">{dimensions}I", header[4:])
            content = read_rest(stream, math.prod(shape), path)
    except (OSError, EOFError, zlib.error) as error:
        raise TorchcapsError(f"{path} cannot be read: {error}") from error
    if not content:
        raise TorchcapsError(f"{path} is empty: its header gives the sizes {shape}")
    return torch.frombuffer(content, dtype=torch.uint8).reshape(shape)


MAGIC = {0x1E3D4C55: "u1", 0x1E3D4C54: "<i4"}  # bytes, 32-bit integers


def read_matrix(path: Path, dimensions: int) -> Tensor:
    """Read a binary matrix: magic number, number of dimensions, little-endian sizes, then data; .gz is decompressed.

    The header has at least three sizes; those beyond the number of dimensions are ignored.
    """
    try:
        with open_unpacked(path) as stream:
            header = stream.read(8)
            places = max(3, dimensions)
            sizes = stream.read(4 * places)
            if len(header) < 8 or len(sizes) < 4 * places:
                raise TorchcapsError(f"{path} is too short for a binary matrix")
            magic, found = struct.unpack("<Ii", header)
            if magic not in MAGIC:
                known = " or ".join(f"{number:#x}" for number in MAGIC)
                raise TorchcapsError(f"{path} is not a binary matrix: it begins with {magic:#x}, expected {known}")
            if found != dimensions:
                raise TorchcapsError(f"{path} has {found} dimensions, expected {dimensions}")
            shape = struct.unpack(f"<{places}i", sizes)[:dimensions]
            if min(shape) <= 0:
                raise TorchcapsError(f"{path} has the sizes {shape}: all must be positive")
            kind = np.dtype(MAGIC[magic])
            content = read_rest(stream, math.prod(shape) * kind.itemsize, path)
    except (OSError, EOFError, zlib.error) as error:
        raise TorchcapsError(f"{path} cannot be read: {error}") from error
    return torch.from_numpy(np.frombuffer(content, dtype=kind).reshape(shape))


MATRIX, COMPRESSED, STRUCT = 14, 15, 2
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
UNSIGNED = {"u2": "i4", "u4": "i8", "u8": "i8"}  # unsigned dtypes with little torch support, as signed ones


# A MATLAB 5 file is a list of elements, each with a tag (type, size) and data padded to eight bytes; an array is an
# element that contains elements. https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf
class DamagedError(Exception):
    """The file is malformed; the caller adds the path."""


def read_struct(path: Path, name: str, fields: Sequence[str]) -> dict[str, Tensor]:
    """Read fields of the struct variable ``name``, each with MATLAB's dimensions (rows first)."""
    try:
        return _find_struct(path.read_bytes(), name, fields)
    except (OSError, DamagedError, struct.error, zlib.error) as error:
        raise TorchcapsError(f"{path} is not a MATLAB 5 file with the struct '{name}': {str(error)[:200]}") from error


def _find_struct(content: bytes, name: str, fields: Sequence[str]) -> dict[str, Tensor]:
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None or len(content) < 128:
        raise DamagedError("its header is missing")
    for kind, body in elements(memoryview(content)[128:], order, padded=False):
        if kind == COMPRESSED:
            kind, body = next(elements(memoryview(unpack(body)), order, padded=False), (0, body))
        if kind == MATRIX:
            found = _fields_of(body, order, name, fields)
            if found is not None:
                return found
    raise DamagedError("no such variable")


def unpack(body: memoryview) -> bytes:
    """Decompress zlib data, up to LARGEST bytes."""
    stream = zlib.decompressobj()
    content = stream.decompress(body, LARGEST)
    if stream.unconsumed_tail:
        raise DamagedError(f"a variable decompresses to more than {LARGEST} bytes")
    return content


def elements(content: memoryview, order: str, *, padded: bool = True) -> Iterator[tuple[int, memoryview]]:
    """Yield consecutive elements as (type, bytes); top-level variables are not padded to eight bytes."""
    at = 0
    while at + 8 <= len(content):
        kind, size = struct.unpack_from(order + "II", content, at)
        if kind >> 16:  # small element: size and type share four bytes, followed by four bytes of data
            kind, size, start, step = kind & 0xFFFF, kind >> 16, at + 4, 8
            if size > 4:
                raise DamagedError("a small element claims more than four bytes")
        else:
            start, step = at + 8, 8 + (math.ceil(size / 8) * 8 if padded else size)
        if start + size > len(content):
            raise DamagedError(f"an element claims {size} bytes, but {len(content) - start} are left")
        yield kind, content[start : start + size]
        at += step


def _head(parts: Iterator[tuple[int, memoryview]], order: str) -> tuple[int, list[int], str]:
    """Read the header of an array: its class, dimensions and name."""
    flags, dimensions, name = (_next(parts)[1] for _ in range(3))
    if len(flags) != 8 or len(dimensions) < 8 or len(dimensions) % 4:
        raise DamagedError("an array has no proper header")
    shape = list(struct.unpack(f"{order}{len(dimensions) // 4}i", dimensions))
    if min(shape) < 0:
        raise DamagedError(f"an array has the dimensions {shape}")
    return struct.unpack(order + "I", flags[:4])[0] & 0xFF, shape, bytes(name).decode("ascii", "replace")


def _next(parts: Iterator[tuple[int, memoryview]]) -> tuple[int, memoryview]:
    part = next(parts, None)
    if part is None:
        raise DamagedError("an array ends too early")
    return part


def _fields_of(body: memoryview, order: str, name: str, wanted: Sequence[str]) -> dict[str, Tensor] | None:
    """Return the wanted fields if this array is the struct called ``name``, else None."""
    parts = elements(body, order)
    kind, shape, found = _head(parts, order)
    if found != name:
        return None
    if kind != STRUCT or math.prod(shape) != 1:
        raise DamagedError(f"'{name}' is not a single struct")
    width_bytes, names = _next(parts)[1], bytes(_next(parts)[1])
    width = struct.unpack(order + "i", width_bytes)[0]
    if not 0 < width <= 64 or len(names) % width:
        raise DamagedError("its field names are damaged")
    labels = [names[at : at + width].split(b"\0")[0].decode("ascii", "replace") for at in range(0, len(names), width)]
    missing = [field for field in wanted if field not in labels]
    if missing:
        raise DamagedError(f"the field '{missing[0]}' is missing, there are: {', '.join(labels)}")
    arrays = {label: _next(parts) for label in labels}
    return {label: _numbers(*arrays[label], order) for label in wanted}


def _numbers(kind: int, body: memoryview, order: str) -> Tensor:
    """Read a numeric array; MATLAB may store it in a smaller type than its class."""
    if kind != MATRIX:
        raise DamagedError("a field is not an array")
    parts = elements(body, order)
    array_class, shape, _ = _head(parts, order)
    stored, content = _next(parts)
    if array_class not in CLASSES or stored not in STORED:
        raise DamagedError("a field is not a numeric array")
    values = np.frombuffer(content, dtype=order + STORED[stored]) if len(content) % _width(stored) == 0 else None
    if values is None or values.size != math.prod(shape):
        raise DamagedError(f"an array of {shape} holds {len(content)} bytes of data")
    dtype = CLASSES[array_class]
    return torch.from_numpy(values.reshape(shape, order="F").astype(UNSIGNED.get(dtype, dtype)))


def _width(stored: int) -> int:
    """Return the bytes per number of a stored type."""
    return int(STORED[stored][1])
