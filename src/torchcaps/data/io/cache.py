"""Tensors that were costly to make, kept as one safetensors file in the user's cache."""

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
    """The tensors in this file if they were made from the same thing and are intact; else made, and kept.

    Two processes may make them at the same time: each writes a file of its own, and the last one stays.
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
    """A fast checksum against accidents: names, shapes, types and content."""
    total = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        total = zlib.crc32(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode(), total)
        total = zlib.crc32(tensor.contiguous().view(torch.uint8).numpy().data, total)
    return f"{total:08x}"
