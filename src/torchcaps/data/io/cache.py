"""On-disk cache of computed tensors, as safetensors files."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from torchcaps.files import atomic_path

log = logging.getLogger(__name__)
Tensors = dict[str, Tensor]


def cached(path: Path, made_from: str, make: Callable[[], Tensors]) -> Tensors:
    """Load the tensors in ``path`` if they are intact and have the key ``made_from``; otherwise compute and save them.

    Processes may compute them concurrently: each writes atomically, and the last one wins.
    """
    found = _read(path, made_from)
    if found is not None:
        return found
    tensors = {name: tensor.contiguous() for name, tensor in make().items()}
    with atomic_path(path) as temporary:
        save_file(tensors, temporary, metadata={"made_from": made_from, "checksum": checksum(tensors)})
    return tensors


def _read(path: Path, made_from: str) -> Tensors | None:
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
    except (OSError, SafetensorError, RuntimeError) as error:
        log.warning("%s is damaged and will be made again: %s", path, error)
        return None
    if metadata.get("made_from") != made_from:
        return None
    if metadata.get("checksum") != checksum(tensors):
        log.warning("%s is damaged and will be made again", path)
        return None
    return tensors


def checksum(tensors: Tensors) -> str:
    """Return a fast, non-cryptographic checksum of names, shapes, dtypes and content."""
    total = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        total = zlib.crc32(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode(), total)
        total = zlib.crc32(tensor.contiguous().view(torch.uint8).numpy().data, total)
    return f"{total:08x}"
