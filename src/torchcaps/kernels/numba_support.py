"""Numba settings and constants shared by all kernels.

Compiled code is cached on disk and releases the GIL. numba compiles a cached function again only if its own file has
changed; here, if any file with compiled loops has, because functions of one file are inlined into those of others. Fast
math allows reordered sums and fused multiply-add, but not the assumption that numbers are finite.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

FAST_MATH = {"contract", "reassoc", "nsz", "arcp"}
_sources = (file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))
SOURCE_STAMP = hashlib.sha256(b"".join(source for source in _sources if b"numba" in source)).digest()


def _compile(**settings: Any) -> Callable[[Callable[..., Any]], Any]:
    numba_jit: Any = njit  # its types know neither all settings nor a decorator without a function
    decorate = numba_jit(
        nogil=True, cache=True, error_model="numpy", fastmath=FAST_MATH, no_cfunc_wrapper=True, **settings
    )

    def compile_function(function: Callable[..., Any]) -> Any:
        found = decorate(function)
        cache = getattr(found, "_cache", None)  # None if compilation is disabled
        if file := getattr(cache, "_cache_file", None):
            file._source_stamp = SOURCE_STAMP
        return found

    return compile_function


compiled = _compile()
# For calls from compiled code only: the Python wrapper takes long to compile.
inner = _compile(no_cpython_wrapper=True, forceinline=True, _nrt=False)

# All constants are float32: a Python float would promote a whole expression to float64.
ZERO, HALF, ONE, TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)
# exp(x) = 2^k exp(f) with |f| <= ln(2) / 2, and exp(f) by its series.
LOG2_E, LN2_HIGH, LN2_LOW = np.float32(1.4426950408889634), np.float32(0.693359375), np.float32(-2.12194440e-4)
LOWEST = np.float32(-87.0)
C2, C3, C4, C5, C6 = np.float32(1 / 2), np.float32(1 / 6), np.float32(1 / 24), np.float32(1 / 120), np.float32(1 / 720)
