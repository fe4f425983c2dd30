"""The IDX format of MNIST: a magic number, big-endian sizes, then bytes."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError

UNSIGNED_BYTE = 8
LARGEST = 1 << 31  # bytes; a header that claims more is refused before anything is allocated


def read_idx(path: Path, dimensions: int) -> Tensor:
    """Read an array of bytes with the given number of dimensions; gzip where the name says so.

    The content must be as long as the header says, to the byte.
    """
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
            header = stream.read(4 + 4 * dimensions)
            if len(header) < 4 + 4 * dimensions:
                raise TorchcapsError(f"{path} is too short for an IDX file: {len(header)} bytes")
            magic = (header[0], header[1], header[2], header[3])
            if magic != (0, 0, UNSIGNED_BYTE, dimensions):
                raise TorchcapsError(
                    f"{path} is no IDX file of {dimensions}-dimensional bytes: "
                    f"expected it to begin with 0 0 {UNSIGNED_BYTE} {dimensions}, found {' '.join(map(str, magic))}"
                )
            shape = struct.unpack(f">{dimensions}I", header[4:])
            count = math.prod(shape)
            if count > LARGEST:
                raise TorchcapsError(f"{path} claims {count} bytes, more than any dataset here: refused")
            content = stream.read(count + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise TorchcapsError(f"{path} cannot be read: {error}") from error
    if len(content) != count:
        raise TorchcapsError(f"{path} should hold {count} bytes for shape {shape}, but holds another number")
    if not count:
        return torch.empty(shape, dtype=torch.uint8)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).reshape(shape)
