"""The loop of dropout, compiled by numba."""

from __future__ import annotations

import numpy as np

from torchcaps.kernels.numba_support import ZERO, compiled, inner

WEYL, FIRST, SECOND = np.uint32(0x9E3779B9), np.uint32(0x7FEB352D), np.uint32(0x846CA68B)


@inner
def scramble(x):
    """Hash 32 bits: every bit of the result depends on all bits of x."""
    x = np.uint32(x ^ (x >> np.uint32(16)))
    x = np.uint32(x * FIRST)
    x = np.uint32(x ^ (x >> np.uint32(15)))
    x = np.uint32(x * SECOND)
    return np.uint32(x ^ (x >> np.uint32(16)))


@compiled
def mask_elements(values, result, low, high, limit, scale, first, last):
    """Zero the elements whose hash is below the limit, and scale the others."""
    own, target = values[first:last], result[first:last]
    for n in range(own.shape[0]):
        number = np.uint32(np.uint32(np.uint32(n) + np.uint32(first)) * WEYL)
        bits = scramble(np.uint32(scramble(np.uint32(number + low)) ^ high))
        target[n] = own[n] * scale if bits >= limit else ZERO
