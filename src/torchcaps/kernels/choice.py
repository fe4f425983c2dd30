"""Which form of a routing runs: the fused one where it can, or the plain definition."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from importlib.util import find_spec

from torchcaps.errors import unknown_name

CHOICES = ("auto", "plain")
_forced: list[str] = []


def kernel_choice() -> str:
    """What is asked for: by :func:`use_kernels`, else by the variable ``TORCHCAPS_KERNELS``, else "auto"."""
    choice = _forced[-1] if _forced else os.environ.get("TORCHCAPS_KERNELS", "auto")
    if choice not in CHOICES:
        raise unknown_name("TORCHCAPS_KERNELS", choice, CHOICES)
    return choice


def fused_is_chosen() -> bool:
    """Whether fused forms may run: not forbidden, and numba is there to compile them."""
    return kernel_choice() == "auto" and find_spec("numba") is not None


@contextlib.contextmanager
def use_kernels(choice: str) -> Iterator[None]:
    """Force a choice for a block: ``with use_kernels("plain"): ...``."""
    if choice not in CHOICES:
        raise unknown_name("kernels", choice, CHOICES)
    _forced.append(choice)
    try:
        yield
    finally:
        _forced.pop()
