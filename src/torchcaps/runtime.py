"""Lazy imports, and process settings that make large CPU tensors faster: the allocator and OpenMP."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

# Parameters of mallopt, from glibc's malloc.h.
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3
LARGEST_INT = 2**31 - 1


def tune_process() -> bool:
    """Keep freed memory in the process and let idle OpenMP threads sleep; return whether the allocator was tuned.

    By default glibc returns large blocks to the system on every free, and the next tensor of that size pays for fresh
    pages. For the tensors of a capsule network this costs more than the arithmetic, see docs/performance.md. Blocks of
    gigabytes are returned all the same, so PyTorch is told to ask for huge pages, of which there are fewer. The
    command line calls this function; ``import torchcaps`` does not. In a program of your own, call it before
    ``import torch``, because OpenMP reads its settings only once. ``TORCHCAPS_MALLOC=0`` leaves the allocator alone.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # spinning threads slow down small operations
    if not sys.platform.startswith("linux") or os.environ.get("TORCHCAPS_MALLOC") == "0":
        return False
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # read by PyTorch at its first allocation
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return False
    settings = ((M_MMAP_THRESHOLD, 1 << 30), (M_TRIM_THRESHOLD, LARGEST_INT), (M_TOP_PAD, 64 << 20))
    accepted = [mallopt(parameter, value) == 1 for parameter, value in settings]
    return all(accepted)


def lazy_exports(
    package: str, exports: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package whose modules are imported when they are first used.

    Args:
        package: ``__name__`` of the package.
        exports: the names that the package exports from each of its modules. The modules themselves are exported too.
    """
    module_of = {name: module for module, names in exports.items() for name in names}

    def get_attribute(name: str) -> Any:
        if name in module_of:
            return getattr(import_module(f"{package}.{module_of[name]}"), name)
        if name in exports:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of, *filter(str.isidentifier, exports)})

    return get_attribute, list_names
