"""Numbers too small for a processor's fast way."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

TINY = 1e-39  # smaller than the smallest normal number of 32 bits


def are_flushed() -> bool:
    """Whether this thread takes such numbers as zero."""
    return bool((torch.tensor([TINY]) * 1.0).item() == 0.0)


@contextlib.contextmanager
def flushed_denormals() -> Iterator[None]:
    """Take numbers that are too small to be normal as zero, where the processor can.

    In a network whose capsules collapse, and EM routing with many iterations makes them, most assignments become such
    numbers; each costs the processor far more than another, and a training crawls instead of going on.
    """
    before = are_flushed()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
