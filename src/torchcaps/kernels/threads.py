"""Images shared out among threads, for compiled loops that do not hold the interpreter's lock."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import torch


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
