"""95 % confidence intervals of means over seeds and of weighted sums of cells, and p-values with Holm's correction."""

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
    """An estimate with its lower and upper bound, its standard error, and the degrees of freedom of its t.

    A normal interval has infinitely many degrees of freedom.
    """

    center: float
    low: float
    high: float
    deviation: float = 0.0
    freedom: float = math.inf

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    def p_value(self, bound: float) -> float:
        """Return the two-sided p-value of the hypothesis that the true value is the bound."""
        if not self.deviation:
            return float(self.center == bound)
        return two_sided_p((self.center - bound) / self.deviation, self.freedom)


def two_sided_p(t: float, freedom: float) -> float:
    """Return the probability that Student's t is at least this far from 0; for the integral see student_quantile.

    >>> round(two_sided_p(4.303, 2), 3), round(two_sided_p(-1.96, math.inf), 3)
    (0.05, 0.05)
    """
    if math.isinf(freedom):
        return math.erfc(abs(t) / math.sqrt(2))
    whole = math.sqrt(math.pi) * math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom + 1) / 2))
    angle = math.atan(abs(t) / math.sqrt(freedom))
    width = min(math.pi / 2 - angle, 10 / math.sqrt(freedom))  # nothing is left ten standard deviations further on
    places = angle + width * (NODES + 1) / 2
    return min(1.0, width * float(WEIGHTS @ np.cos(places) ** (freedom - 1)) / whole)


def holm_adjust(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for multiple testing (Holm 1979), in the given order.

    >>> holm_adjust([0.03, 0.01, 0.02])
    [0.04, 0.03, 0.04]
    """
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


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
    return _around(statistics.fmean(values), deviation, len(values) - 1)


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
    return _around(center, math.sqrt(sum(parts)), freedom)


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
    return _around(center, math.sqrt(sum(parts)), math.inf)


def _around(center: float, deviation: float, freedom: float) -> Interval:
    half_width = deviation * (NORMAL if math.isinf(freedom) else student_quantile(freedom))
    return Interval(center, center - half_width, center + half_width, deviation, freedom)
