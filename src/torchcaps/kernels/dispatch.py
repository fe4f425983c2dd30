"""Choice between fast kernels and plain PyTorch definitions, and the thread pool of the CPU's kernels."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from typing import Any

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
    """Whether the CPU's kernels support a tensor: float32 on a CPU, in eager mode."""
    return tensor.device.type == "cpu" and tensor.dtype == torch.float32 and not torch.compiler.is_compiling()


def runs_fused(*tensors: Tensor) -> bool:
    """Whether the CPU's kernels are to be used for all these tensors: they support them, and nothing forbids it."""
    return fused_is_chosen() and all(map(runs_compiled, tensors)) and not torch.is_autocast_enabled("cpu")


def runs_on_triton(*tensors: Tensor) -> bool:
    """Whether Triton's kernels may run: they are not disabled, Triton is installed, and it supports the tensors' GPU.

    They compute in float32. With ``TRITON_INTERPRET=1`` Triton interprets its kernels on CPU tensors, which is slow
    and meant for tests.
    """
    if kernel_choice() == "plain" or find_spec("triton") is None:
        return False
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return all((interpreted or triton_supports(each.device)) and each.dtype == torch.float32 for each in tensors)


@cache
def triton_supports(device: torch.device) -> bool:
    """Whether Triton generates code for a device: NVIDIA GPUs from compute capability 7.0 on, and AMD's."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (7, 0)


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


def on_threads(work: Callable[[int, int], Any], images: int) -> list[Any]:
    """Call ``work(first, last)`` for a contiguous range of images on each torch thread; return the results in order."""
    threads = max(1, min(torch.get_num_threads(), images))
    bounds = [images * number // threads for number in range(threads + 1)]
    if threads == 1:
        return [work(0, images)]
    return list(_pool(threads).map(work, bounds[:-1], bounds[1:]))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="torchcaps")


def restart_threads() -> None:
    """Start new threads for the next kernel; they inherit the floating-point mode of the thread that calls it."""
    _pool.cache_clear()


if hasattr(os, "register_at_fork"):  # threads do not survive a fork: the child starts its own pool
    os.register_at_fork(after_in_child=_pool.cache_clear)
