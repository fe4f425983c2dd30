"""Reference for competition: all parent types at all positions that see a child, in plain Python."""

from __future__ import annotations

import math


def shares(logits: list[list[list[float]]], seen: list[list[int]]) -> list[list[list[float]]]:
    """One image: logits[p][i][j] to shares of the same layout; seen[p][i] is the child in slot i of position p."""
    totals: dict[int, float] = {}
    for position, children in zip(logits, seen, strict=True):
        for slot, child in zip(position, children, strict=True):
            totals[child] = totals.get(child, 0.0) + sum(math.exp(x) for x in slot)
    return [
        [[math.exp(x) / totals[child] for x in slot] for slot, child in zip(position, children, strict=True)]
        for position, children in zip(logits, seen, strict=True)
    ]


def windows(height: int, width: int, types: int, kernel: int, stride: int) -> list[list[tuple[int, int, int]]]:
    """Which child (row, column, type) stands in which slot of which position of a convolution without padding."""
    return [
        [(y + dy, x + dx, n) for dy in range(kernel) for dx in range(kernel) for n in range(types)]
        for y in range(0, height - kernel + 1, stride)
        for x in range(0, width - kernel + 1, stride)
    ]
