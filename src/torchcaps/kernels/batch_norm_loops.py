"""Loops of batch normalization and ReLU, compiled by numba: maps as (B, H*W, C/16, 16), numbers per channel (C/16, 16).

Where C is no multiple of 16, "pixels" are as many as fill whole lanes, and channels are those of all of them.

``added`` has the shape of the maps, or no images if nothing is added. Sums are those of one image, whose pixels stay in
the cache for a second pass; the caller adds them up in float64.
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
def combine_moments(means, deviations, pixels, moments):
    """Mean and variance of each channel, ``moments`` (2, C), from those of the images, with ``pixels`` in each lane."""
    channels = moments.shape[1]
    lanes, weight = means.size // len(means), 1.0 / (means.size // channels)
    means, deviations = means.reshape((len(means), lanes)), deviations.reshape((len(means), lanes))
    for c in range(channels):
        total = 0.0
        for b in range(len(means)):
            for lane in range(c, lanes, channels):
                total += means[b, lane]
        mean, squares = total * weight, 0.0
        for b in range(len(means)):
            for lane in range(c, lanes, channels):
                distance = means[b, lane] - mean
                squares += deviations[b, lane] / pixels + distance * distance
        moments[0, c] = mean
        moments[1, c] = squares * weight


@compiled
def spread_channels(moments, weight, bias, epsilon, lanes):
    """Mean, scale and offset of each channel in the order of the lanes: ``lanes`` (3, C/16, 16)."""
    channels = len(weight)
    flat = lanes.reshape((3, lanes.shape[1] * lanes.shape[2]))
    for lane in range(flat.shape[1]):
        c = lane % channels
        flat[0, lane] = moments[0, c]
        flat[1, lane] = weight[c] / np.sqrt(moments[1, c] + epsilon)
        flat[2, lane] = bias[c]


@compiled
def combine_gradients(sums, products, moments, weight, epsilon, share, gradients, lanes):
    """Gradients of weight and bias, ``gradients`` (2, C), and what is subtracted from those of the maps.

    ``share`` is 1 / the pixels of all images, or 0 if mean and variance are constants; ``lanes`` (2, C/16, 16) are the
    arguments ``shift`` and ``tilt`` of :func:`normalized_gradients`.
    """
    channels = len(weight)
    flat = lanes.reshape((2, lanes.shape[1] * lanes.shape[2]))
    sums, products = sums.reshape((len(sums), flat.shape[1])), products.reshape((len(sums), flat.shape[1]))
    for c in range(channels):
        total, product = 0.0, 0.0
        for b in range(len(sums)):
            for lane in range(c, flat.shape[1], channels):
                total += sums[b, lane]
                product += products[b, lane]
        inverse = 1.0 / np.sqrt(np.float64(moments[1, c]) + epsilon)
        gradients[0, c] = product * inverse
        gradients[1, c] = total
        for lane in range(c, flat.shape[1], channels):
            flat[0, lane] = share * weight[c] * inverse * total
            flat[1, lane] = share * weight[c] * inverse * inverse * inverse * product


@compiled
def normalize_and_rectify(maps, mean, scale, bias, added, result, first, last):
    """result = max((maps - mean) * scale + bias + added, 0)."""
    adds = len(added) > 0
    for b in range(first, last):
        for p in range(maps.shape[1]):
            for q in range(maps.shape[2]):
                value = (vload(maps, (b, p, q)) - vload(mean, (q,))) * vload(scale, (q,)) + vload(bias, (q,))
                if adds:
                    value += vload(added, (b, p, q))
                vstore(result, (b, p, q), max(value, ZERO))


@compiled
def image_gradient_sums(maps, slopes, mean, scale, bias, added, sums, products, first, last):
    """Sums over each image of the gradient before ReLU, and of its product with the centered maps, (B, C/16, 16)."""
    adds = len(added) > 0
    for b in range(first, last):
        for q in range(maps.shape[2]):
            center, factor, offset = vload(mean, (q,)), vload(scale, (q,)), vload(bias, (q,))
            total, product = zeros(), zeros()
            for p in range(maps.shape[1]):
                centered = vload(maps, (b, p, q)) - center
                value = centered * factor + offset
                if adds:
                    value += vload(added, (b, p, q))
                slope = where_below(zeros(), value, vload(slopes, (b, p, q)))
                total += slope
                product += slope * centered
            vstore(sums, (b, q), total)
            vstore(products, (b, q), product)


@compiled
def normalized_gradients(maps, slopes, mean, scale, bias, added, shift, tilt, dmaps, dadded, first, last):
    """dadded = slopes where the output is positive; dmaps = dadded * scale - shift - tilt * (maps - mean)."""
    adds = len(added) > 0
    for b in range(first, last):
        for p in range(maps.shape[1]):
            for q in range(maps.shape[2]):
                centered, factor = vload(maps, (b, p, q)) - vload(mean, (q,)), vload(scale, (q,))
                value = centered * factor + vload(bias, (q,))
                if adds:
                    value += vload(added, (b, p, q))
                slope = where_below(zeros(), value, vload(slopes, (b, p, q)))
                if adds:
                    vstore(dadded, (b, p, q), slope)
                vstore(dmaps, (b, p, q), slope * factor - vload(shift, (q,)) - vload(tilt, (q,)) * centered)
