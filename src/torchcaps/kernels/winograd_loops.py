"""Loops of Winograd's convolution, compiled by numba: feature maps as (B, H, W, C/16, 16), tiles of 4x4 outputs.

A tile reads 6x6 pixels, which become 36 numbers per channel, so that the convolution is 36 products of matrices of
tiles by channels. ``TILES`` tiles are processed at once, so that these matrices stay in the processor's cache. A
transform goes first along the columns of a tile and then along its rows, with ``half`` (6, 6, 16) in between.
"""

from __future__ import annotations

import numpy as np

from torchcaps.kernels.matrix_tiles import multiply
from torchcaps.kernels.numba_support import HALF, TWO, compiled, inner
from torchcaps.kernels.simd import vload, vstore, zeros

TILES = 24  # a multiple of the rows of every tile of matrix_tiles
POINTS = 36  # numbers of a tile per channel
A, B = np.float32(0.5**0.5), np.float32(2**0.5)  # the points of the transform are 0, A, -A, B, -B and infinity
A3, B3, SUM = np.float32(0.5**1.5), np.float32(2**1.5), np.float32(2.5)  # cubes, and A * A + B * B


@inner
def input_points(d0, d1, d2, d3, d4, d5):
    """Six pixels at the six points: the rows of the paper's B^T."""
    even, odd = d4 - TWO * d2, A * d3 - B * d1
    far, wide = d4 - HALF * d2, B * d3 - A * d1
    return d0 - SUM * d2 + d4, even + odd, even - odd, far + wide, far - wide, d1 - SUM * d3 + d5


@inner
def output_pixels(m0, m1, m2, m3, m4, m5):
    """Four pixels from numbers at the six points: the rows of A^T."""
    near, inner_slope, far, outer_slope = m1 + m2, m1 - m2, m3 + m4, m3 - m4
    first, second = m0 + near + far, A * inner_slope + B * outer_slope
    return first, second, HALF * near + TWO * far, A3 * inner_slope + B3 * outer_slope + m5


@inner
def slope_points(y0, y1, y2, y3):
    """The gradients of four pixels at the six points: the rows of A."""
    even, odd = y0 + HALF * y2, A * y1 + A3 * y3
    far, wide = y0 + TWO * y2, B * y1 + B3 * y3
    return y0, even + odd, even - odd, far + wide, far - wide, y3


@inner
def copy_padded(maps, image, padding, padded):
    """Copy an image into an array whose border is zero."""
    for y in range(maps.shape[1]):
        for x in range(maps.shape[2]):
            for q in range(maps.shape[3]):
                vstore(padded, (y + padding, x + padding, q), vload(maps, (image, y, x, q)))


@inner
def store_column(half, x, t0, t1, t2, t3, t4, t5):
    vstore(half, (0, x), t0)
    vstore(half, (1, x), t1)
    vstore(half, (2, x), t2)
    vstore(half, (3, x), t3)
    vstore(half, (4, x), t4)
    vstore(half, (5, x), t5)


@inner
def store_row(values, row, tile, q, t0, t1, t2, t3, t4, t5):
    vstore(values, (6 * row, tile, q), t0)
    vstore(values, (6 * row + 1, tile, q), t1)
    vstore(values, (6 * row + 2, tile, q), t2)
    vstore(values, (6 * row + 3, tile, q), t3)
    vstore(values, (6 * row + 4, tile, q), t4)
    vstore(values, (6 * row + 5, tile, q), t5)


@inner
def row_of(half, row):
    return (
        vload(half, (row, 0)),
        vload(half, (row, 1)),
        vload(half, (row, 2)),
        vload(half, (row, 3)),
        vload(half, (row, 4)),
        vload(half, (row, 5)),
    )


@inner
def pixel_column(padded, y, x, q):
    return (
        vload(padded, (y, x, q)),
        vload(padded, (y + 1, x, q)),
        vload(padded, (y + 2, x, q)),
        vload(padded, (y + 3, x, q)),
        vload(padded, (y + 4, x, q)),
        vload(padded, (y + 5, x, q)),
    )


@inner
def product_column(products, column, tile, q):
    return (
        vload(products, (column, tile, q)),
        vload(products, (6 + column, tile, q)),
        vload(products, (12 + column, tile, q)),
        vload(products, (18 + column, tile, q)),
        vload(products, (24 + column, tile, q)),
        vload(products, (30 + column, tile, q)),
    )


@inner
def transform_pixels(padded, y, x, half, values, tile):
    """Transform 6x6 pixels of every channel."""
    for q in range(padded.shape[2]):
        for j in range(6):
            d0, d1, d2 = (
                vload(padded, (y, x + j, q)),
                vload(padded, (y + 1, x + j, q)),
                vload(padded, (y + 2, x + j, q)),
            )
            d3, d4 = vload(padded, (y + 3, x + j, q)), vload(padded, (y + 4, x + j, q))
            d5 = vload(padded, (y + 5, x + j, q))
            t0, t1, t2, t3, t4, t5 = input_points(d0, d1, d2, d3, d4, d5)
            store_column(half, j, t0, t1, t2, t3, t4, t5)
        for row in range(6):
            d0, d1, d2, d3, d4, d5 = row_of(half, row)
            t0, t1, t2, t3, t4, t5 = input_points(d0, d1, d2, d3, d4, d5)
            store_row(values, row, tile, q, t0, t1, t2, t3, t4, t5)


@inner
def restore_pixels(products, tile, half, result, image, y, x, bias):
    """Transform the products of a tile to 4x4 pixels of every channel, and add the bias."""
    rows, columns = min(4, result.shape[1] - y), min(4, result.shape[2] - x)
    for q in range(products.shape[2]):
        for j in range(6):
            m0, m1, m2 = (
                vload(products, (j, tile, q)),
                vload(products, (6 + j, tile, q)),
                vload(products, (12 + j, tile, q)),
            )
            m3, m4 = vload(products, (18 + j, tile, q)), vload(products, (24 + j, tile, q))
            m5 = vload(products, (30 + j, tile, q))
            p0, p1, p2, p3 = output_pixels(m0, m1, m2, m3, m4, m5)
            vstore(half, (0, j), p0)
            vstore(half, (1, j), p1)
            vstore(half, (2, j), p2)
            vstore(half, (3, j), p3)
        offset = vload(bias, (q,))
        for row in range(rows):
            m0, m1, m2, m3, m4, m5 = row_of(half, row)
            p0, p1, p2, p3 = output_pixels(m0, m1, m2, m3, m4, m5)
            vstore(result, (image, y + row, x, q), p0 + offset)
            if columns > 1:
                vstore(result, (image, y + row, x + 1, q), p1 + offset)
            if columns > 2:
                vstore(result, (image, y + row, x + 2, q), p2 + offset)
            if columns > 3:
                vstore(result, (image, y + row, x + 3, q), p3 + offset)


@compiled
def convolve(maps, padding, kernels, bias, result, half, padded, values, products, first, last):
    """Convolve images: kernels (36, C, C'), bias (C'/16, 16).

    ``half``, ``padded``, ``values`` (36, TILES + 1, C/16, 16) and ``products`` (36, TILES + 1, C'/16, 16) are buffers.
    """
    across = (result.shape[2] + 3) // 4
    count = across * ((result.shape[1] + 3) // 4)  # tiles of an image
    rows = values.shape[1]
    left, sums = values.reshape((POINTS, rows, kernels.shape[1])), products.reshape((POINTS, rows, kernels.shape[2]))
    total, current = (last - first) * count, -1
    for start in range(0, total, TILES):
        stop = min(start + TILES, total)
        for t in range(start, stop):
            image, place = first + t // count, t % count
            if image != current:
                copy_padded(maps, image, padding, padded)
                current = image
            transform_pixels(padded, 4 * (place // across), 4 * (place % across), half, values, t - start)
        for n in range(POINTS):
            multiply(left[n], kernels[n], sums[n], stop - start, 0)
        for t in range(start, stop):
            image, place = first + t // count, t % count
            y, x = 4 * (place // across), 4 * (place % across)
            restore_pixels(products, t - start, half, result, image, y, x, bias)


@inner
def slope_at(slopes, image, y, x, q):
    """The gradient of a pixel; zero outside of the image."""
    if y < slopes.shape[1] and x < slopes.shape[2]:
        return vload(slopes, (image, y, x, q))
    return zeros()


@inner
def transform_slopes(slopes, image, y, x, half, values, tile):
    """Transform the gradients of 4x4 pixels of every channel to 36 numbers."""
    for q in range(slopes.shape[3]):
        for j in range(4):
            y0, y1 = slope_at(slopes, image, y, x + j, q), slope_at(slopes, image, y + 1, x + j, q)
            y2, y3 = slope_at(slopes, image, y + 2, x + j, q), slope_at(slopes, image, y + 3, x + j, q)
            t0, t1, t2, t3, t4, t5 = slope_points(y0, y1, y2, y3)
            store_column(half, j, t0, t1, t2, t3, t4, t5)
        for row in range(6):
            y0, y1, y2, y3, _, _ = row_of(half, row)
            t0, t1, t2, t3, t4, t5 = slope_points(y0, y1, y2, y3)
            store_row(values, row, tile, q, t0, t1, t2, t3, t4, t5)


@compiled
def add_kernel_gradients(maps, padding, slopes, result, half, padded, values, gradients, first, last):
    """Add the gradients of the transformed kernels to ``result`` (36, C, C').

    ``half``, ``padded``, ``values`` (36, TILES + 1, C/16, 16) and ``gradients`` (36, TILES + 1, C'/16, 16) are buffers.
    """
    inputs, outputs, rows = result.shape[1], result.shape[2], values.shape[1]
    across = (slopes.shape[2] + 3) // 4
    count = across * ((slopes.shape[1] + 3) // 4)
    left, right = values.reshape((POINTS, rows, inputs)), gradients.reshape((POINTS, rows, outputs))
    total, current = (last - first) * count, -1
    for start in range(0, total, TILES):
        stop = min(start + TILES, total)
        for t in range(start, stop):
            image, place = first + t // count, t % count
            y, x = 4 * (place // across), 4 * (place % across)
            if image != current:
                copy_padded(maps, image, padding, padded)
                current = image
            transform_pixels(padded, y, x, half, values, t - start)
            transform_slopes(slopes, image, y, x, half, gradients, t - start)
        for n in range(POINTS):
            multiply(left[n, : stop - start].T, right[n, : stop - start], result[n], inputs, 1)
