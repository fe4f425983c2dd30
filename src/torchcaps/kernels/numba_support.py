"""Numba settings shared by all kernels.

Compiled code is cached on disk and releases the GIL. Fast math allows reordered sums and fused multiply-add, but not
the assumption that numbers are finite.
"""

from __future__ import annotations

from functools import partial
from typing import Any

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
