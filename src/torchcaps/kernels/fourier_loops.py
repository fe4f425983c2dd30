"""Small two-dimensional Fourier transforms of many channels at once, as loops compiled by numba.

A pixel is a row of channels, so that every loop over channels vectorizes. Along one axis, a transform of N points is a
product with a table of cosines and one of sines, after the points n and N - n were added and subtracted, which halves
the arithmetic. For N up to 16 a product has at most nine terms.

Of the spectrum of a real N x N square only the bins that determine it are stored, with real and imaginary part: for
column k from 0 to N/2 the rows q for which ``numbers[k, q]`` is not negative. The array of a spectrum has a row for
each bin, which is flat in part, image and F = phase * channels + channel. The phases are the pixels with the same
remainders of row and column modulo the stride. Buffers and tables are flat: a row of a buffer has 64 numbers, one per
channel, and a row of a table nine, with zeros after the last term.

An image whose phases are larger than N is cut into ``tiles`` x ``tiles`` squares, ``step`` pixels of a phase apart,
each with a spectrum of its own; of a square only the top left part of ``most`` pixels per side is read or written.
"""

from __future__ import annotations

import numpy as np

from torchcaps.kernels.matrix_tiles import multiply
from torchcaps.kernels.numba_support import ONE, TWO, ZERO, compiled, inner
from torchcaps.kernels.simd import LANES, transpose_lanes, vload, vstore, zeros

TERMS = 9
GROUP = 4  # units of 64 channels whose bins are written one after the other, so that memory is written in order


@inner
def combine(target, table, source, count, terms, lanes):
    """Compute ``count`` rows of the target, each a weighted sum of the first ``terms`` rows of the source."""
    for k in range(count):
        t0, t1, t2, t3, t4 = table[9 * k], table[9 * k + 1], table[9 * k + 2], table[9 * k + 3], table[9 * k + 4]
        t5, t6, t7, t8 = table[9 * k + 5], table[9 * k + 6], table[9 * k + 7], table[9 * k + 8]
        if terms <= 5:
            for c in range(lanes):
                low = t0 * source[c] + t1 * source[64 + c] + t2 * source[128 + c] + t3 * source[192 + c]
                target[k * 64 + c] = low + t4 * source[256 + c]
        else:
            for c in range(lanes):
                low = t0 * source[c] + t1 * source[64 + c] + t2 * source[128 + c] + t3 * source[192 + c]
                low += t4 * source[256 + c] + t5 * source[320 + c] + t6 * source[384 + c]
                target[k * 64 + c] = low + t7 * source[448 + c] + t8 * source[512 + c]


@inner
def copy_row(target, source, lanes):
    for c in range(lanes):
        target[c] = source[c]


@inner
def add_and_subtract(sums, differences, one, other, lanes):
    for c in range(lanes):
        a, b = one[c], other[c]
        sums[c] = a + b
        differences[c] = a - b


@inner
def scaled_sum_and_difference(sums, differences, one, other, scale, lanes):
    for c in range(lanes):
        a, b = scale * one[c], scale * other[c]
        sums[c] = a + b
        differences[c] = a - b


@inner
def fold(even, odd, points, side, lanes):
    """Add and subtract the points n and N - n: rows 0 to N/2 of ``even``, and n - 1 of ``odd``."""
    copy_row(even, points, lanes)
    for n in range((side - 1) // 2):
        one, other = points[(n + 1) * 64 :], points[(side - 1 - n) * 64 :]
        add_and_subtract(even[(n + 1) * 64 :], odd[n * 64 :], one, other, lanes)
    if side % 2 == 0:
        copy_row(even[(side // 2) * 64 :], points[(side // 2) * 64 :], lanes)


@compiled
def transform_images(images, spectrum, side, stride, cosines, sines, numbers, tiles, step, most, first, last):
    """Write the spectra of the images ``first`` to ``last``: (B, H, W, C) into (bins, 2 * B * F and padding).

    With more than one tile, B in the spectrum counts the tiles of all images.
    """
    height, width, channels = images.shape[1:]
    batch = images.shape[0] * tiles * tiles
    pixels = images.reshape(-1)
    features = stride * stride * channels
    columns, pairs = side // 2 + 1, (side - 1) // 2
    blocks = (channels + 63) // 64
    units = stride * stride * blocks  # of 64 channels of a phase, next to each other in every bin
    groups = (units + GROUP - 1) // GROUP
    points, parts = np.zeros(side * 64, np.float32), np.zeros((6, TERMS * 64), np.float32)
    even, odd, even_i, odd_i, cosine, sine = parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]
    reals = np.zeros((GROUP, columns * side * 64), np.float32)
    imaginaries, sums = np.zeros_like(reals), np.zeros((4 * GROUP, TERMS * 64), np.float32)
    for item in range((last - first) * tiles * tiles * groups):
        square, start = first * tiles * tiles + item // groups, item % groups * GROUP
        image, above = square // (tiles * tiles), square // tiles % tiles * step
        before = square % tiles * step
        count = min(GROUP, units - start)
        for g in range(count):
            phase, begin = (start + g) // blocks, (start + g) % blocks * 64
            top, left = phase // stride + above * stride, phase % stride + before * stride
            lanes = min(64, channels - begin)
            tall = min(most, (height - top + stride - 1) // stride)
            wide = min(most, (width - left + stride - 1) // stride)
            real, imaginary = reals[g], imaginaries[g]
            for y in range(side):  # along the rows of the image
                if y < tall:
                    for x in range(side):
                        if x < wide:
                            where = ((image * height + y * stride + top) * width + x * stride + left) * channels + begin
                            copy_row(points[x * 64 :], pixels[where:], lanes)
                        else:
                            points[x * 64 : x * 64 + 64] = ZERO
                    fold(even, odd, points, side, lanes)
                    combine(cosine, cosines, even, columns, columns, lanes)
                    combine(sine, sines, odd, columns, pairs, lanes)
                    for k in range(columns):
                        copy_row(real[(k * side + y) * 64 :], cosine[k * 64 :], lanes)
                        flipped, given = imaginary[(k * side + y) * 64 :], sine[k * 64 :]
                        for c in range(lanes):
                            flipped[c] = -given[c]
                else:
                    for k in range(columns):
                        real[(k * side + y) * 64 : (k * side + y) * 64 + 64] = ZERO
                        imaginary[(k * side + y) * 64 : (k * side + y) * 64 + 64] = ZERO
        for k in range(columns):  # along the columns
            for g in range(count):
                lanes = min(64, channels - (start + g) % blocks * 64)
                fold(even, odd, reals[g, (k * side) * 64 :], side, lanes)
                fold(even_i, odd_i, imaginaries[g, (k * side) * 64 :], side, lanes)
                combine(sums[4 * g], cosines, even, columns, columns, lanes)
                combine(sums[4 * g + 1], sines, odd, columns, pairs, lanes)
                combine(sums[4 * g + 2], cosines, even_i, columns, columns, lanes)
                combine(sums[4 * g + 3], sines, odd_i, columns, pairs, lanes)
            for q in range(columns):
                for g in range(count):
                    phase, begin = (start + g) // blocks, (start + g) % blocks * 64
                    where, lanes = square * features + phase * channels + begin, min(64, channels - begin)
                    a, b = sums[4 * g, q * 64 :], sums[4 * g + 1, q * 64 :]
                    ai, bi = sums[4 * g + 2, q * 64 :], sums[4 * g + 3, q * 64 :]
                    found = spectrum[numbers[k, q]]
                    re, im = found[where:], found[batch * features + where :]
                    for c in range(lanes):
                        re[c] = a[c] + bi[c]
                        im[c] = ai[c] - b[c]
                    if 0 < q < side - q and numbers[k, side - q] >= 0:
                        found = spectrum[numbers[k, side - q]]
                        re, im = found[where:], found[batch * features + where :]
                        for c in range(lanes):
                            re[c] = a[c] - bi[c]
                            im[c] = ai[c] + b[c]


@compiled
def restore_images(spectrum, images, side, stride, cosines, sines, numbers, tiles, step, most, first, last):
    """Write the images ``first`` to ``last`` of a spectrum, the top left part of each phase: the inverse transform.

    Tiles that overlap, because ``most`` is larger than ``step``, are added to the images.
    """
    height, width, channels = images.shape[1:]
    batch = images.shape[0] * tiles * tiles
    pixels = images.reshape(-1)
    features = stride * stride * channels
    columns, pairs = side // 2 + 1, (side - 1) // 2
    parts = np.zeros((8, TERMS * 64), np.float32)
    even, odd, cosine, sine = parts[0], parts[1], parts[2], parts[3]
    even_i, odd_i, cosine_i, sine_i = parts[4], parts[5], parts[6], parts[7]
    real, imaginary = np.zeros(TERMS * side * 64, np.float32), np.zeros(TERMS * side * 64, np.float32)
    for item in range((last - first) * tiles * tiles * stride * stride):
        square, phase = first * tiles * tiles + item // (stride * stride), item % (stride * stride)
        image = square // (tiles * tiles)
        top = phase // stride + square // tiles % tiles * step * stride
        left = phase % stride + square % tiles * step * stride
        tall = min(most, (height - top + stride - 1) // stride)
        wide = min(most, (width - left + stride - 1) // stride)
        for block in range((channels + 63) // 64):
            begin = block * 64
            lanes = min(64, channels - begin)
            where = square * features + phase * channels + begin
            for k in range(columns):
                conjugate = numbers[k, side - 1] < 0  # the other half of this column follows from this one
                scale = (ONE if k == 0 or 2 * k == side else TWO) / np.float32(side * side)
                for q in range(columns):
                    found = spectrum[numbers[k, q]]
                    re, im = found[where:], found[batch * features + where :]
                    if q == 0 or 2 * q == side:
                        row_even, row_even_i = even[q * 64 :], even_i[q * 64 :]
                        for c in range(lanes):
                            row_even[c] = scale * re[c]
                            row_even_i[c] = scale * im[c]
                    elif conjugate:
                        row_even, row_odd = even[q * 64 :], odd[(q - 1) * 64 :]
                        row_even_i, row_odd_i = even_i[q * 64 :], odd_i[(q - 1) * 64 :]
                        for c in range(lanes):
                            row_even[c] = TWO * scale * re[c]
                            row_odd_i[c] = TWO * scale * im[c]
                            row_even_i[c] = ZERO
                            row_odd[c] = ZERO
                    else:
                        other = spectrum[numbers[k, side - q]]
                        re_o, im_o = other[where:], other[batch * features + where :]
                        scaled_sum_and_difference(even[q * 64 :], odd[(q - 1) * 64 :], re, re_o, scale, lanes)
                        scaled_sum_and_difference(even_i[q * 64 :], odd_i[(q - 1) * 64 :], im, im_o, scale, lanes)
                combine(cosine, cosines, even, columns, columns, lanes)
                combine(sine, sines, odd, columns, pairs, lanes)
                combine(cosine_i, cosines, even_i, columns, columns, lanes)
                combine(sine_i, sines, odd_i, columns, pairs, lanes)
                for y in range(min(side, tall)):
                    q = min(y, side - y)
                    a, b, ai, bi = cosine[q * 64 :], sine[q * 64 :], cosine_i[q * 64 :], sine_i[q * 64 :]
                    re, im = real[(y * 9 + k) * 64 :], imaginary[(y * 9 + max(k - 1, 0)) * 64 :]
                    if y == q:
                        for c in range(lanes):
                            re[c] = a[c] - bi[c]
                        if 0 < k < side - k:
                            for c in range(lanes):
                                im[c] = ai[c] + b[c]
                    else:
                        for c in range(lanes):
                            re[c] = a[c] + bi[c]
                        if 0 < k < side - k:
                            for c in range(lanes):
                                im[c] = ai[c] - b[c]
            for y in range(min(side, tall)):
                combine(cosine, cosines, real[(y * 9) * 64 :], columns, columns, lanes)
                combine(sine, sines, imaginary[(y * 9) * 64 :], columns, pairs, lanes)
                for x in range(min(side, wide)):
                    at = ((image * height + y * stride + top) * width + x * stride + left) * channels + begin
                    pixel, a, b = pixels[at:], cosine[(min(x, side - x)) * 64 :], sine[(min(x, side - x)) * 64 :]
                    sign = -ONE if 2 * x <= side else ONE
                    if tiles > 1 and most > step:
                        for c in range(lanes):
                            pixel[c] += a[c] + sign * b[c]
                    else:
                        for c in range(lanes):
                            pixel[c] = a[c] + sign * b[c]


@compiled
def multiply_bins(left, right, result, added, first, last):
    """result = left @ right for each frequency: 3-D arrays; with ``added`` 1, add to the result."""
    for n in range(first, last):
        multiply(left[n], right[n], result[n], result.shape[1], added)


@compiled
def multiply_conjugates(images, kernels, result, turned, block, first, last):
    """Y = X W* for each frequency: images (bins, 2, B, F), kernels (bins, 2, O, F/16, 16), result (bins, 2, B, O).

    Buffers: ``turned`` (3, F, O/16, 16) has the transposed real part, imaginary part and its negative; ``block``
    (16, 16).
    """
    outputs, vectors = kernels.shape[2:4]
    flat = turned.reshape((3, vectors * LANES, outputs))
    for n in range(first, last):
        for part in range(2):
            for o in range(outputs // LANES):
                for f in range(vectors):
                    for r in range(LANES):
                        vstore(block, (r,), vload(kernels, (n, part, o * LANES + r, f)))
                    transpose_lanes(block, (0,))
                    for r in range(LANES):
                        value = vload(block, (r,))
                        vstore(turned, (part, f * LANES + r, o), value)
                        if part:
                            vstore(turned, (2, f * LANES + r, o), zeros() - value)
        real, imaginary = images[n, 0], images[n, 1]
        multiply(real, flat[0], result[n, 0], images.shape[2], 0)
        multiply(imaginary, flat[1], result[n, 0], images.shape[2], 1)
        multiply(imaginary, flat[0], result[n, 1], images.shape[2], 0)
        multiply(real, flat[2], result[n, 1], images.shape[2], 1)
