"""Losses written from the papers' equations in plain Python numbers."""

from __future__ import annotations


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
