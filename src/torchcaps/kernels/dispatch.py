"""Choice between fast kernels and plain PyTorch definitions."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from importlib.util import find_spec

import torch
from torch import Tensor

from torchcaps.errors import unknown_name

CHOICES = ("auto", "plain", "fast")  # fast: skip the autotuning
_forced: ContextVar[str | None] = ContextVar("torchcaps_kernels", default=None)  # per thread or asyncio task


def kernel_choice() -> str:
    """The requested kernels: by :func:`use_kernels`, otherwise by ``TORCHCAPS_KERNELS``, otherwise "auto"."""
    if torch.compiler.is_compiling():  # a graph can neither call numba nor read a context variable
        return "plain"
    choice = _forced.get() or os.environ.get("TORCHCAPS_KERNELS", "auto")
    if choice not in CHOICES:
        raise unknown_name("TORCHCAPS_KERNELS", choice, CHOICES)
    return choice


def fused_is_chosen() -> bool:
    """Whether numba kernels may run: they are not disabled, and numba is installed."""
    return kernel_choice() != "plain" and find_spec("numba") is not None


def runs_compiled(tensor: Tensor) -> bool:
    """Whether kernels support a tensor: float32 on a CPU, in eager mode."""
    return tensor.device.type == "cpu" and tensor.dtype == torch.float32 and not torch.compiler.is_compiling()


@contextlib.contextmanager
def use_kernels(choice: str) -> Iterator[None]:
    """Force a choice for a block: ``with use_kernels("plain"): ...``.

    The choice holds in the thread that enters the block. Threads started inside the block do not inherit it.
    """
    if choice not in CHOICES:
        raise unknown_name("kernels", choice, CHOICES)
    before = _forced.set(choice)
    try:
        yield
    finally:
        _forced.reset(before)
