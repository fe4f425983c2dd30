"""Process settings that make large CPU tensors faster: the allocator and OpenMP."""

from __future__ import annotations

import ctypes
import os
import sys

# Parameters of mallopt, from glibc's malloc.h.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
LARGEST_INT = 2**31 - 1


def tune_process() -> bool:
    """Keep freed memory in the process and let idle OpenMP threads sleep; return whether the allocator was tuned.

    By default glibc returns large blocks to the system on every free, and the next tensor of that size pays for fresh
    pages. For the tensors of a capsule network this costs more than the arithmetic, see docs/performance.md. The
    command line calls this function; ``import torchcaps`` does not. In a program of your own, call it before
    ``import torch``, because OpenMP reads its settings only once. ``TORCHCAPS_MALLOC=0`` leaves the allocator alone.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads slow down small operations
    if not sys.platform.startswith("linux") or os.environ.get("TORCHCAPS_MALLOC") == "0":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return False
    settings = ((M_MMAP_THRESHOLD, 1 << 30), (M_TRIM_THRESHOLD, LARGEST_INT), (M_TOP_PAD, 64 << 20))
    accepted = [mallopt(parameter, value) == 1 for parameter, value in settings]
    return all(accepted)
