"""The IDX format of MNIST: a magic number, big-endian sizes, then bytes."""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.data.streams import open_unpacked, read_rest
from torchcaps.errors import TorchcapsError

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
