"""Slow, plain versions of what evaluate/ counts, one image at a time. They share no code with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tests.reference.data_loops import Picture, warp

Answer = Callable[[Picture], Sequence[float]]  # the scores of one image

UNITY = [[1.0, 0.0], [0.0, 1.0]]


def highest(scores: Sequence[float], count: int) -> set[int]:
    """The places of the highest scores, found by taking the greatest again and again."""
    left = dict(enumerate(scores))
    found = set()
    for _ in range(count):
        place = max(left, key=lambda each: left[each])
        found.add(place)
        del left[place]
    return found


def changed(picture: Picture, factor: str, strength: float) -> Picture:
    """One picture under one affine factor."""
    matrix, shift = UNITY, (0.0, 0.0)
    angle = math.radians(strength)
    if factor == "rotation":
        matrix = [[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]
    elif factor == "shear_x":
        matrix = [[1.0, math.tan(angle)], [0.0, 1.0]]
    elif factor == "scale":
        matrix = [[strength, 0.0], [0.0, strength]]
    elif factor == "shift_x":
        shift = (strength, 0.0)
    else:
        shift = (0.0, strength)
    return warp(picture, matrix, shift, len(picture), len(picture[0]))


def affine_accuracy(
    answer: Answer, pictures: Sequence[Picture], labels: Sequence[int], factor: str, strength: float
) -> float:
    """Share of pictures that are right under one factor."""
    right = 0
    for picture, label in zip(pictures, labels, strict=True):
        right += highest(answer(changed(picture, factor, strength)), 1) == {label}
    return right / len(pictures)


def squared_error(drawn: Picture, wanted: Picture) -> float:
    """Mean over the pixels."""
    total, count = 0.0, 0
    for drawn_row, wanted_row in zip(drawn, wanted, strict=True):
        for one, other in zip(drawn_row, wanted_row, strict=True):
            total += (one - other) ** 2
            count += 1
    return total / count


def by_degree(right: Sequence[bool], degrees: Sequence[int]) -> dict[str, float]:
    """Share of right answers from each side."""
    result = {}
    for degree in set(degrees):
        chosen = [answer for answer, seen in zip(right, degrees, strict=True) if seen == degree]
        result[str(degree)] = sum(chosen) / len(chosen)
    return result
