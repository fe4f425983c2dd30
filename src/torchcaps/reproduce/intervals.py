"""95 % confidence intervals of means over seeds, and of weighted sums of cells."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

TAIL = 0.975  # 95 % between the two tails
NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)
NORMAL = statistics.NormalDist().inv_cdf(TAIL)


@dataclass(frozen=True)
class Interval:
    """An estimate with its lower and upper bound."""

    center: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


def student_quantile(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's t.

    With t = sqrt(f) tan(a), the distribution function is 1/2 plus the integral of cos^(f - 1) from 0 to a, divided
    by twice that from 0 to pi/2. Gauss-Legendre quadrature evaluates it, and bisection finds a.

    >>> round(student_quantile(2), 3), round(student_quantile(10), 3)
    (4.303, 2.228)
    """
    whole = math.sqrt(math.pi) * math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2))
    low, high = 0.0, min(math.pi / 2, 10 / math.sqrt(freedom))  # the quantile is below ten standard deviations
    for _ in range(60):
        angle = (low + high) / 2
        places = angle * (NODES + 1) / 2
        share = 0.5 + angle / 2 * float(WEIGHTS @ np.cos(places) ** (freedom - 1)) / whole
        low, high = (angle, high) if share < TAIL else (low, angle)
    return math.sqrt(freedom) * math.tan(low)


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the t interval of the mean of independent values."""
    deviation = statistics.stdev(values) / math.sqrt(len(values))
    return _around(statistics.fmean(values), student_quantile(len(values) - 1) * deviation)


def paired_interval(weights: Sequence[float], samples: Sequence[Sequence[float]]) -> Interval:
    """Return the t interval of a weighted sum of cells with the same seeds: the sum is formed for each seed."""
    each = [math.fsum(w * x for w, x in zip(weights, row, strict=True)) for row in zip(*samples, strict=True)]
    return mean_interval(each)


def welch_interval(weights: Sequence[float], samples: Sequence[Sequence[float]]) -> Interval:
    """Return the interval of a weighted sum of means with unequal variances and sizes (Welch 1947)."""
    center = math.fsum(w * statistics.fmean(sample) for w, sample in zip(weights, samples, strict=True))
    parts = [w**2 * statistics.variance(sample) / len(sample) for w, sample in zip(weights, samples, strict=True)]
    if not any(parts):
        return Interval(center, center, center)
    freedom = sum(parts) ** 2 / sum(part**2 / (len(sample) - 1) for part, sample in zip(parts, samples, strict=True))
    return _around(center, student_quantile(freedom) * math.sqrt(sum(parts)))


def proportion_interval(weights: Sequence[float], shares: Sequence[float], images: Sequence[int]) -> Interval:
    """Return the normal interval of a weighted sum of proportions of independent images.

    Four pseudo-observations are added, half of them correct (Price and Bonett 2004); otherwise proportions of exactly 0
    or 1 would have no variance. For a difference of two proportions this is the Agresti-Caffo interval (2000).
    """
    added = 4 / len(shares)
    counts = [n + added for n in images]
    moved = [(share * n + added / 2) / count for share, n, count in zip(shares, images, counts, strict=True)]
    center = math.fsum(w * share for w, share in zip(weights, moved, strict=True))
    parts = [w**2 * p * (1 - p) / count for w, p, count in zip(weights, moved, counts, strict=True)]
    return _around(center, NORMAL * math.sqrt(sum(parts)))


def _around(center: float, half_width: float) -> Interval:
    return Interval(center, center - half_width, center + half_width)
