"""A small reader of MATLAB 5 files: the named numeric fields of one struct, and nothing else.

The format: https://www.mathworks.com/help/pdf_doc/matlab/matfile_format.pdf. A file is a list of elements, each a tag
(type, size) and so many bytes, padded to eight; an array is an element that holds elements. Every size is compared
with what is really there before anything is made of it, so no header can ask for more memory than the file justifies.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError

LARGEST = 1 << 31  # bytes that a compressed variable may unpack to: affNIST's largest file has half a gigabyte
MATRIX, COMPRESSED, STRUCT = 14, 15, 2
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
UNSIGNED = {"u2": "i4", "u4": "i8", "u8": "i8"}  # torch has few unsigned types; the next wider signed one holds all


class DamagedError(Exception):
    """Something in the file does not fit; the reader adds which file it was."""


def read_struct(path: Path, name: str, fields: Sequence[str]) -> dict[str, Tensor]:
    """The fields of the struct variable ``name``, each with MATLAB's dimensions (rows first)."""
    try:
        return _find_struct(path.read_bytes(), name, fields)
    except (OSError, DamagedError, struct.error, zlib.error) as error:
        raise TorchcapsError(f"{path} is no MATLAB 5 file with the struct '{name}': {str(error)[:200]}") from error


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
    """Undo zlib's compression, up to LARGEST bytes."""
    stream = zlib.decompressobj()
    content = stream.decompress(body, LARGEST)
    if stream.unconsumed_tail:
        raise DamagedError(f"a variable unpacks to more than {LARGEST} bytes")
    return content


def elements(content: memoryview, order: str, *, padded: bool = True) -> Iterator[tuple[int, memoryview]]:
    """The elements that lie one after the other: (type, bytes) each. Variables of a file are not padded to eight."""
    at = 0
    while at + 8 <= len(content):
        kind, size = struct.unpack_from(order + "II", content, at)
        if kind >> 16:  # the small form: size and type share four bytes, four bytes of data follow
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
    """What every array begins with: its class, dimensions and name."""
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
    """The wanted fields, if this array is the struct of that name; else None."""
    parts = elements(body, order)
    kind, shape, found = _head(parts, order)
    if found != name:
        return None
    if kind != STRUCT or math.prod(shape) != 1:
        raise DamagedError(f"'{name}' is no single struct")
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
    """A numeric array; MATLAB may store it in a smaller type than the one it stands for."""
    if kind != MATRIX:
        raise DamagedError("a field is no array")
    parts = elements(body, order)
    array_class, shape, _ = _head(parts, order)
    stored, content = _next(parts)
    if array_class not in CLASSES or stored not in STORED:
        raise DamagedError("a field is no array of numbers")
    values = np.frombuffer(content, dtype=order + STORED[stored]) if len(content) % _width(stored) == 0 else None
    if values is None or values.size != math.prod(shape):
        raise DamagedError(f"an array of {shape} holds {len(content)} bytes of data")
    wide = CLASSES[array_class]
    return torch.from_numpy(values.reshape(shape, order="F").astype(UNSIGNED.get(wide, wide)))


def _width(stored: int) -> int:
    """Bytes per number of a stored type."""
    return int(STORED[stored][1])
