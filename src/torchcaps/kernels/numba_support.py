"""How loops are compiled: once, kept on disk, without the interpreter's lock.

Sums may be taken in another order, as vector instructions need, and a product may be joined with a sum; nothing is
assumed of the numbers themselves, so what is not finite stays so.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import torch
from numba import njit

# MERGED Images shared out among threads, for compiled loops that do not hold the interpreter's lock.
_njit = partial(
    njit,
    nogil=True,
    cache=True,
    error_model="numpy",
    fastmath={"contract", "reassoc", "nsz", "arcp"},
    no_cfunc_wrapper=True,
)
compiled: Any = _njit()
inner: Any = _njit(no_cpython_wrapper=True)  # for compiled loops to call: a way in from Python takes long to compile


def on_threads(work: Callable[[int, int], Any], images: int) -> list[Any]:
    """Call ``work(first, last)`` for neighbouring images on each of torch's threads; results in their order."""
    threads = max(1, min(torch.get_num_threads(), images))
    bounds = [images * number // threads for number in range(threads + 1)]
    if threads == 1:
        return [work(0, images)]
    return list(_pool(threads).map(work, bounds[:-1], bounds[1:]))


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="torchcaps")


if hasattr(os, "register_at_fork"):  # a forked process has none of its parent's threads: it starts its own pool
    os.register_at_fork(after_in_child=_pool.cache_clear)
