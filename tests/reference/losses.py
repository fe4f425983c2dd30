"""Losses written from the papers' equations in plain Python numbers."""

from __future__ import annotations

import math
from typing import Any


def margin_loss(lengths: list[list[float]], present: list[list[int]]) -> float:
    """sabour2017, equation 4: summed over classes, averaged over images."""
    total = 0.0
    for image, truth in zip(lengths, present, strict=True):
        for length, there in zip(image, truth, strict=True):
            total += max(0.0, 0.9 - length) ** 2 if there else 0.5 * max(0.0, length - 0.1) ** 2
    return total / len(lengths)


def squared_error(drawn: list[list[float]], wanted: list[list[float]]) -> float:
    """Summed over the pixels of an image, averaged over images."""
    return sum(sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) for x, y in zip(drawn, wanted, strict=True)) / len(
        drawn
    )


def spread_loss(activations: list[list[float]], labels: list[int], margin: float) -> float:
    """hinton2018, equation 3: summed over wrong classes, averaged over images."""
    total = 0.0
    for image, truth in zip(activations, labels, strict=True):
        for label, activation in enumerate(image):
            if label != truth:
                total += max(0.0, margin - (image[truth] - activation)) ** 2
    return total / len(activations)


def routing_free_energy(
    votes: Any, a: list[float], r: Any, mean: Any, variance: Any, active: list[float], beta_u: Any, beta_a: Any
) -> float:
    """hinton2018, equation 4, of one image: votes[i][j][h], r[i][j] are the assignments, active[j] the parents."""
    total = 0.0
    for j, aj in enumerate(active):
        total += aj * -beta_a[j] + aj * math.log(aj) + (1 - aj) * math.log(1 - aj)
        for i, ai in enumerate(a):
            for h, v in enumerate(variance[j]):
                off = votes[i][j][h] - mean[j][h]
                density = math.exp(-off * off / (2 * v)) / math.sqrt(2 * math.pi * v)
                total -= ai * r[i][j] * math.log(density)
            total += beta_u[j] * ai * r[i][j] + ai * r[i][j] * math.log(r[i][j])
    return total
