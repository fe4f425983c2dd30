"""Slow, plain versions of what data/ computes, one pixel or one number at a time. They share no code with it."""

from __future__ import annotations

import math

Picture = list[list[float]]


def warp(picture: Picture, matrix: list[list[float]], shift: tuple[float, float], rows: int, columns: int) -> Picture:
    """Each pixel of the result looks up, by bilinear interpolation, where it came from; black outside."""
    (a, b), (c, d) = matrix
    determinant = a * d - b * c
    height, width = len(picture), len(picture[0])

    def pixel(row: int, column: int) -> float:
        return picture[row][column] if 0 <= row < height and 0 <= column < width else 0.0

    result = []
    for row in range(rows):
        line = []
        for column in range(columns):
            x = column + 0.5 - columns / 2 - shift[0]  # from the center, in pixels
            y = row + 0.5 - rows / 2 - shift[1]
            from_x = (d * x - b * y) / determinant + width / 2 - 0.5
            from_y = (-c * x + a * y) / determinant + height / 2 - 0.5
            left, top = math.floor(from_x), math.floor(from_y)
            right_share, bottom_share = from_x - left, from_y - top
            line.append(
                pixel(top, left) * (1 - bottom_share) * (1 - right_share)
                + pixel(top, left + 1) * (1 - bottom_share) * right_share
                + pixel(top + 1, left) * bottom_share * (1 - right_share)
                + pixel(top + 1, left + 1) * bottom_share * right_share
            )
        result.append(line)
    return result


def place(picture: Picture, top: int, left: int, rows: int, columns: int) -> Picture:
    """Copy a picture onto a black canvas, pixel by pixel."""
    canvas = [[0.0] * columns for _ in range(rows)]
    for row, line in enumerate(picture):
        for column, value in enumerate(line):
            if 0 <= top + row < rows and 0 <= left + column < columns:
                canvas[top + row][left + column] = value
    return canvas


def splitmix64(state: int) -> int:
    """The published finishing function, on Python's whole numbers."""
    mask = (1 << 64) - 1
    state &= mask
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
    return state ^ (state >> 31)


def uniform(seed: int, stream: int, position: int) -> float:
    """Number ``position`` of a stream: three rounds of mixing, the upper 53 bits as a fraction."""
    step = 0x9E3779B97F4A7C15
    start = splitmix64((seed + 1) * step)
    start = splitmix64(start + (stream + 1) * step)
    return (splitmix64(start + (position + 1) * step) >> 11) / 2**53


def nearest_surface(inside: object, point: tuple[float, float, float], reach: float, steps: int) -> float:
    """The distance from a point to a solid by trying every point of a grid: ``inside(x, y, z)`` says what is solid."""
    best = math.inf
    grid = [-reach + 2 * reach * number / (steps - 1) for number in range(steps)]
    for x in grid:
        for y in grid:
            for z in grid:
                if inside(x, y, z):  # type: ignore[operator]
                    best = min(best, math.dist((x, y, z), point))
    return best
