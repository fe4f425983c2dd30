"""Loops of the fused affine map and tanh, compiled by numba: rows of poses (R, types, D), D a multiple of 16."""

from __future__ import annotations

import numpy as np

from torchcaps.kernels.matrix_tiles import multiply
from torchcaps.kernels.numba_support import ONE, TWO, compiled, inner
from torchcaps.kernels.simd import LANES, exponential, vload, vstore, zeros

ROWS = 64  # computed at once; a multiple of the rows of every tile of matrix_tiles
HIGHEST = np.float32(20)


@inner
def tanh(x):
    """1 - 2 / (exp(2 x) + 1)."""
    return ONE - TWO / (exponential(TWO * min(x, HIGHEST)) + ONE)


@inner
def fill(block, rows, first, last, t):
    """Copy rows of one type to a block."""
    for r in range(first, last):
        for q in range(rows.shape[2]):
            vstore(block, (r - first, q), vload(rows, (r, t, q)))


@compiled
def map_rows(rows, weight, bias, result, block, mapped, first, last):
    """tanh(row @ weight + bias) for blocks of rows: (R, types, D/16, 16), weight (types, D, D).

    ``block`` and ``mapped`` (ROWS, D/16, 16) are buffers.
    """
    size = weight.shape[2]
    left, product = block.reshape((ROWS, size)), mapped.reshape((ROWS, size))
    for start in range(first * ROWS, min(last * ROWS, rows.shape[0]), ROWS):
        stop = min(start + ROWS, rows.shape[0])
        for t in range(weight.shape[0]):
            fill(block, rows, start, stop, t)
            multiply(left, weight[t], product, stop - start, 0)
            for q in range(size // LANES):
                offset = vload(bias, (t, q))
                for r in range(start, stop):
                    vstore(result, (r, t, q), tanh(vload(mapped, (r - start, q)) + offset))


@compiled
def map_gradients(rows, turned, results, slopes, drows, dweight, dbias, slope, back, first, last):
    """Gradients of the rows, and sums of those of weight and bias. ``turned`` is the transposed weight.

    ``slope`` and ``back`` (ROWS, D/16, 16) are buffers.
    """
    types, size = turned.shape[0], turned.shape[2]
    flat = rows.reshape((rows.shape[0], types * size))
    before, product = slope.reshape((ROWS, size)), back.reshape((ROWS, size))
    for start in range(first * ROWS, min(last * ROWS, rows.shape[0]), ROWS):
        stop = min(start + ROWS, rows.shape[0])
        count = stop - start
        for t in range(types):
            for q in range(size // LANES):
                total = zeros()
                for r in range(start, stop):
                    value = vload(results, (r, t, q))
                    own = vload(slopes, (r, t, q)) * (ONE - value * value)
                    vstore(slope, (r - start, q), own)
                    total += own
                vstore(dbias, (t, q), vload(dbias, (t, q)) + total)
            multiply(flat[start:stop, t * size : (t + 1) * size].T, before[:count], dweight[t], size, 1)
            multiply(before, turned[t], product, count, 0)
            for q in range(size // LANES):
                for r in range(start, stop):
                    vstore(drows, (r, t, q), vload(back, (r - start, q)))
