"""The binary matrix format of NORB: a magic number, the number of dimensions, little-endian sizes, then the data.

https://cs.nyu.edu/~ylclab/data/norb-v1.0-small/ (section "file format")
"""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchcaps.data.streams import open_unpacked, read_rest
from torchcaps.errors import TorchcapsError

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
