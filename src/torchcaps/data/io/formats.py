"""Reading a file as a stream, packed or not, without believing its header about how much there is."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO, cast

import numpy as np
import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError

# MERGED The IDX format of MNIST: a magic number, big-endian sizes, then bytes.
# MERGED The binary matrix format of NORB: a magic number, the number of dimensions, little-endian sizes
CHUNK = 1 << 20
LARGEST = 1 << 31  # bytes; a header that claims more is refused before anything is read


def open_unpacked(path: Path) -> IO[bytes]:
    """Open a file for reading, through gzip where the name says so."""
    return cast(IO[bytes], gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def read_rest(stream: IO[bytes], count: int, path: Path) -> bytearray:
    """The rest of a stream, which must be exactly ``count`` bytes.

    Memory grows with what is really there, a piece at a time: a header that lies costs nothing.
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
    """Read an array of bytes with the given number of dimensions; gzip where the name says so.

    The content must be as long as the header says, to the byte.
    """
    try:
        with open_unpacked(path) as stream:
            header = stream.read(4 + 4 * dimensions)
            if len(header) < 4 + 4 * dimensions:
                raise TorchcapsError(f"{path} is too short for an IDX file: {len(header)} bytes")
            magic = tuple(header[:4])
            if magic != (0, 0, UNSIGNED_BYTE, dimensions):
                raise TorchcapsError(
                    f"{path} is no IDX file of {dimensions}-dimensional bytes: "
                    f"expected it to begin with 0 0 {UNSIGNED_BYTE} {dimensions}, found {' '.join(map(str, magic))}"
                )
            shape = struct.unpack(f">{dimensions}I", header[4:])
            content = read_rest(stream, math.prod(shape), path)
    except (OSError, EOFError, zlib.error) as error:
        raise TorchcapsError(f"{path} cannot be read: {error}") from error
    if not content:
        raise TorchcapsError(f"{path} holds nothing: its header gives the sizes {shape}")
    return torch.frombuffer(content, dtype=torch.uint8).reshape(shape)


MAGIC = {0x1E3D4C55: "u1", 0x1E3D4C54: "<i4"}  # bytes, 32-bit integers


def read_matrix(path: Path, dimensions: int) -> Tensor:
    """Read an array with the given number of dimensions; gzip where the name says so.

    Sizes fill at least three places, whatever the number of dimensions; the places beyond it mean nothing.
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
                raise TorchcapsError(f"{path} is no binary matrix: it begins with {magic:#x}, expected {known}")
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
