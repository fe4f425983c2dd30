"""Reading a file as a stream, packed or not, without believing its header about how much there is."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import IO, cast

from torchcaps.errors import TorchcapsError

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
