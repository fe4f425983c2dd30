"""Numba settings shared by all kernels, and a thread pool over the images of a batch.

Compiled code is cached on disk and releases the GIL. Fast math allows reordered sums and fused multiply-add, but not
the assumption that numbers are finite.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import torch
from numba import njit

_njit = partial(
    njit,
    nogil=True,
    cache=True,
    error_model="numpy",
    fastmath={"contract", "reassoc", "nsz", "arcp"},
    no_cfunc_wrapper=True,
)
compiled: Any = _njit()
# For calls from compiled code only: the Python wrapper takes long to compile.
inner: Any = _njit(no_cpython_wrapper=True)


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


if hasattr(os, "register_at_fork"):  # threads do not survive a fork: the child starts its own pool
    os.register_at_fork(after_in_child=_pool.cache_clear)
