"""Settings of the process that make large CPU tensors fast; done once, when torchcaps is imported."""

from __future__ import annotations

import ctypes
import os
import sys

# Numbers of mallopt's parameters, from glibc's malloc.h.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
LARGEST_INT = 2**31 - 1


def tune_process() -> bool:
    """Keep freed memory, and let waiting threads sleep. True if the allocator took the settings.

    glibc hands large blocks back to the system at every free, and the next tensor of that size pays for fresh
    pages again: for the tensors of a capsule network that costs more than the arithmetic. Raising the
    thresholds keeps the memory in the process. ``TORCHCAPS_MALLOC=0`` leaves the allocator alone.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # small operations stall when waiting threads spin
    if not sys.platform.startswith("linux") or os.environ.get("TORCHCAPS_MALLOC") == "0":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another libc than glibc
        return False
    wanted = ((M_MMAP_THRESHOLD, 1 << 30), (M_TRIM_THRESHOLD, LARGEST_INT), (M_TOP_PAD, 64 << 20))
    taken = [mallopt(parameter, value) == 1 for parameter, value in wanted]
    return all(taken)
