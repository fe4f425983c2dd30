"""Loops of Winograd's convolution, compiled by numba: feature maps as (B, H, W, C/16, 16), tiles of 2x2 outputs.

A tile reads 4x4 pixels, which become 16 numbers per channel, so that the convolution is 16 products of matrices of
tiles by channels. ``TILES`` tiles are processed at once, so that these matrices stay in the processor's cache.
"""

from __future__ import annotations

from torchcaps.kernels.matrix_tiles import multiply
from torchcaps.kernels.numba_support import compiled, inner
from torchcaps.kernels.simd import vload, vstore, zeros

TILES = 24  # a multiple of the rows of every tile of matrix_tiles


@inner
def input_row(a, b, c, d):
    return a - c, b + c, c - b, b - d


@inner
def output_row(a, b, c, d):
    return a + b + c, b - c - d


@inner
def copy_padded(maps, image, padded):
    """Copy an image to the middle of an array whose border is zero."""
    for y in range(maps.shape[1]):
        for x in range(maps.shape[2]):
            for q in range(maps.shape[3]):
                vstore(padded, (y + 1, x + 1, q), vload(maps, (image, y, x, q)))


@inner
def pixel_column(padded, y, x, q):
    """The first transform, of the four pixels below each other."""
    return input_row(
        vload(padded, (y, x, q)),
        vload(padded, (y + 1, x, q)),
        vload(padded, (y + 2, x, q)),
        vload(padded, (y + 3, x, q)),
    )


@inner
def store_row(values, row, tile, q, a, b, c, d):
    vstore(values, (4 * row, tile, q), a)
    vstore(values, (4 * row + 1, tile, q), b)
    vstore(values, (4 * row + 2, tile, q), c)
    vstore(values, (4 * row + 3, tile, q), d)


@inner
def transform_pixels(padded, y, x, values, tile):
    """Transform 4x4 pixels of every channel."""
    for q in range(padded.shape[2]):
        a0, a1, a2, a3 = pixel_column(padded, y, x, q)
        b0, b1, b2, b3 = pixel_column(padded, y, x + 1, q)
        c0, c1, c2, c3 = pixel_column(padded, y, x + 2, q)
        d0, d1, d2, d3 = pixel_column(padded, y, x + 3, q)
        t0, t1, t2, t3 = input_row(a0, b0, c0, d0)
        store_row(values, 0, tile, q, t0, t1, t2, t3)
        t0, t1, t2, t3 = input_row(a1, b1, c1, d1)
        store_row(values, 1, tile, q, t0, t1, t2, t3)
        t0, t1, t2, t3 = input_row(a2, b2, c2, d2)
        store_row(values, 2, tile, q, t0, t1, t2, t3)
        t0, t1, t2, t3 = input_row(a3, b3, c3, d3)
        store_row(values, 3, tile, q, t0, t1, t2, t3)


@inner
def result_column(products, column, tile, q):
    return output_row(
        vload(products, (column, tile, q)),
        vload(products, (4 + column, tile, q)),
        vload(products, (8 + column, tile, q)),
        vload(products, (12 + column, tile, q)),
    )


@inner
def restore_pixels(products, tile, result, image, y, x, bias):
    """Transform the products of a tile to 2x2 pixels of every channel, and add the bias."""
    below, beside = y + 1 < result.shape[1], x + 1 < result.shape[2]
    for q in range(products.shape[2]):
        a0, a1 = result_column(products, 0, tile, q)
        b0, b1 = result_column(products, 1, tile, q)
        c0, c1 = result_column(products, 2, tile, q)
        d0, d1 = result_column(products, 3, tile, q)
        offset = vload(bias, (q,))
        left, right = output_row(a0, b0, c0, d0)
        vstore(result, (image, y, x, q), left + offset)
        if beside:
            vstore(result, (image, y, x + 1, q), right + offset)
        if below:
            left, right = output_row(a1, b1, c1, d1)
            vstore(result, (image, y + 1, x, q), left + offset)
            if beside:
                vstore(result, (image, y + 1, x + 1, q), right + offset)


@compiled
def convolve(maps, kernels, bias, result, padded, values, products, first, last):
    """Convolve images: kernels (16, C, C'), bias (C'/16, 16).

    ``padded``, ``values`` (16, TILES + 1, C/16, 16) and ``products`` (16, TILES + 1, C'/16, 16) are buffers.
    """
    across = (maps.shape[2] + 1) // 2
    count = across * ((maps.shape[1] + 1) // 2)  # tiles of an image
    rows = values.shape[1]
    left, sums = values.reshape((16, rows, kernels.shape[1])), products.reshape((16, rows, kernels.shape[2]))
    total, current = (last - first) * count, -1
    for start in range(0, total, TILES):
        stop = min(start + TILES, total)
        for t in range(start, stop):
            image, place = first + t // count, t % count
            if image != current:
                copy_padded(maps, image, padded)
                current = image
            transform_pixels(padded, 2 * (place // across), 2 * (place % across), values, t - start)
        for n in range(16):
            multiply(left[n], kernels[n], sums[n], stop - start, 0)
        for t in range(start, stop):
            image, place = first + t // count, t % count
            restore_pixels(products, t - start, result, image, 2 * (place // across), 2 * (place % across), bias)


@inner
def spread_row(a, b):
    return a, a + b, a - b, zeros() - b


@inner
def transform_slopes(slopes, image, y, x, values, tile):
    """Transform the gradients of 2x2 pixels of every channel to 16 numbers."""
    below, beside = y + 1 < slopes.shape[1], x + 1 < slopes.shape[2]
    for q in range(slopes.shape[3]):
        a, b, c, d = vload(slopes, (image, y, x, q)), zeros(), zeros(), zeros()
        if beside:
            b = vload(slopes, (image, y, x + 1, q))
        if below:
            c = vload(slopes, (image, y + 1, x, q))
            if beside:
                d = vload(slopes, (image, y + 1, x + 1, q))
        l0, l1, l2, l3 = spread_row(a, c)
        r0, r1, r2, r3 = spread_row(b, d)
        t0, t1, t2, t3 = spread_row(l0, r0)
        store_row(values, 0, tile, q, t0, t1, t2, t3)
        t0, t1, t2, t3 = spread_row(l1, r1)
        store_row(values, 1, tile, q, t0, t1, t2, t3)
        t0, t1, t2, t3 = spread_row(l2, r2)
        store_row(values, 2, tile, q, t0, t1, t2, t3)
        t0, t1, t2, t3 = spread_row(l3, r3)
        store_row(values, 3, tile, q, t0, t1, t2, t3)


@compiled
def add_kernel_gradients(maps, slopes, result, padded, values, gradients, first, last):
    """Add the gradients of the transformed kernels to ``result`` (16, C, C').

    ``padded``, ``values`` (16, TILES + 1, C/16, 16) and ``gradients`` (16, TILES + 1, C'/16, 16) are buffers.
    """
    inputs, outputs, rows = result.shape[1], result.shape[2], values.shape[1]
    across = (maps.shape[2] + 1) // 2
    count = across * ((maps.shape[1] + 1) // 2)
    left, right = values.reshape((16, rows, inputs)), gradients.reshape((16, rows, outputs))
    total, current = (last - first) * count, -1
    for start in range(0, total, TILES):
        stop = min(start + TILES, total)
        for t in range(start, stop):
            image, place = first + t // count, t % count
            y, x = 2 * (place // across), 2 * (place % across)
            if image != current:
                copy_padded(maps, image, padded)
                current = image
            transform_pixels(padded, y, x, values, t - start)
            transform_slopes(slopes, image, y, x, gradients, t - start)
        for n in range(16):
            multiply(left[n, : stop - start].T, right[n, : stop - start], result[n], inputs, 1)
