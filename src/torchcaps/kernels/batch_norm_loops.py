"""Loops of batch normalization and ReLU, compiled by numba: maps as (B, H*W, C/16, 16), numbers per channel (C/16, 16).

Sums are those of one image, whose pixels stay in the cache for a second pass; the caller adds them up in float64.
"""

from __future__ import annotations

import numpy as np

from torchcaps.kernels.numba_support import ONE, ZERO, compiled
from torchcaps.kernels.simd import vload, vstore, where_below, zeros


@compiled
def image_moments(maps, means, deviations, first, last):
    """Mean and sum of squared deviations of each image and channel, (B, C/16, 16)."""
    pixels = maps.shape[1]
    share = ONE / np.float32(pixels)
    for b in range(first, last):
        for q in range(maps.shape[2]):
            total = zeros()
            for p in range(pixels):
                total += vload(maps, (b, p, q))
            mean = total * share
            squares = zeros()
            for p in range(pixels):
                centered = vload(maps, (b, p, q)) - mean
                squares += centered * centered
            vstore(means, (b, q), mean)
            vstore(deviations, (b, q), squares)


@compiled
def normalize_and_rectify(maps, mean, scale, bias, result, first, last):
    """result = max((maps - mean) * scale + bias, 0)."""
    for b in range(first, last):
        for p in range(maps.shape[1]):
            for q in range(maps.shape[2]):
                value = (vload(maps, (b, p, q)) - vload(mean, (q,))) * vload(scale, (q,)) + vload(bias, (q,))
                vstore(result, (b, p, q), max(value, ZERO))


@compiled
def image_gradient_sums(maps, slopes, mean, scale, bias, sums, products, first, last):
    """Sums over each image of the gradient before ReLU, and of its product with the centered maps, (B, C/16, 16)."""
    for b in range(first, last):
        for q in range(maps.shape[2]):
            center, factor, offset = vload(mean, (q,)), vload(scale, (q,)), vload(bias, (q,))
            total, product = zeros(), zeros()
            for p in range(maps.shape[1]):
                centered = vload(maps, (b, p, q)) - center
                slope = where_below(zeros(), centered * factor + offset, vload(slopes, (b, p, q)))
                total += slope
                product += slope * centered
            vstore(sums, (b, q), total)
            vstore(products, (b, q), product)


@compiled
def normalized_gradients(maps, slopes, mean, scale, bias, shift, tilt, result, first, last):
    """result = slopes * scale where the output is positive, minus shift + tilt * (maps - mean)."""
    for b in range(first, last):
        for p in range(maps.shape[1]):
            for q in range(maps.shape[2]):
                centered, factor = vload(maps, (b, p, q)) - vload(mean, (q,)), vload(scale, (q,))
                slope = where_below(zeros(), centered * factor + vload(bias, (q,)), vload(slopes, (b, p, q)))
                vstore(result, (b, p, q), slope * factor - vload(shift, (q,)) - vload(tilt, (q,)) * centered)
