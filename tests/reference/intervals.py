"""Intervals the slow way: areas added up strip by strip, formulas written out for two samples. No shared code."""

from __future__ import annotations

import math
from collections.abc import Sequence

# Two-sided 95 % values of Student's t as printed in tables, by degrees of freedom.
TABLE = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 5: 2.5706, 8: 2.3060, 10: 2.2281, 30: 2.0423, 120: 1.9799}


def area_between(freedom: float, reach: float, strips: int = 20_000) -> float:
    """Share of Student's t between -reach and reach: the density summed in narrow strips."""
    scale = math.gamma((freedom + 1) / 2) / (math.sqrt(freedom * math.pi) * math.gamma(freedom / 2))
    width = reach / strips
    middles = ((strip + 0.5) * width for strip in range(strips))
    return 2 * width * sum(scale * (1 + t * t / freedom) ** (-(freedom + 1) / 2) for t in middles)


def mean_and_variance(values: Sequence[float]) -> tuple[float, float]:
    mean = sum(values) / len(values)
    return mean, sum((value - mean) ** 2 for value in values) / (len(values) - 1)


def welch_freedom(first: Sequence[float], second: Sequence[float]) -> float:
    """Degrees of freedom of the difference of two means, as in Welch's paper."""
    a = mean_and_variance(first)[1] / len(first)
    b = mean_and_variance(second)[1] / len(second)
    return (a + b) ** 2 / (a * a / (len(first) - 1) + b * b / (len(second) - 1))


def agresti_caffo(right: tuple[int, int], images: tuple[int, int]) -> tuple[float, float]:
    """Ends of the interval of a difference of two shares: one right and one wrong image are added to each."""
    p, q = ((count + 1) / (n + 2) for count, n in zip(right, images, strict=True))
    half = 1.959964 * math.sqrt(p * (1 - p) / (images[0] + 2) + q * (1 - q) / (images[1] + 2))
    return p - q - half, p - q + half
