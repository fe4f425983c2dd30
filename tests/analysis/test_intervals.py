"""Intervals and p-values against published tables, numerical integration and simulation."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from tests.reference import intervals as slow
from torchcaps.analysis.intervals import (
    holm_adjust,
    mean_interval,
    paired_interval,
    proportion_interval,
    student_quantile,
    two_sided_p,
    welch_interval,
)

FIRST, SECOND = [98.1, 98.4, 98.0, 98.9], [97.0, 97.9, 96.8]


@pytest.mark.parametrize(("freedom", "printed"), slow.TABLE.items())
def test_quantiles_agree_with_published_tables(freedom: int, printed: float) -> None:
    assert student_quantile(freedom) == pytest.approx(printed, abs=6e-5)


@pytest.mark.parametrize("freedom", [1.0, 1.7, 2.35, 6.2, 55.5])
def test_quantiles_enclose_95_percent(freedom: float) -> None:
    assert slow.area_between(freedom, student_quantile(freedom)) == pytest.approx(0.95, abs=1e-6)


def test_quantiles_approach_the_normal_quantile() -> None:
    assert student_quantile(1e7) == pytest.approx(1.959964, abs=1e-5)


def test_welch_interval_agrees_with_the_formula() -> None:
    found = welch_interval([1, -1], [FIRST, SECOND])
    (m, v), (n, w) = slow.mean_and_variance(FIRST), slow.mean_and_variance(SECOND)
    half_width = student_quantile(slow.welch_freedom(FIRST, SECOND)) * math.sqrt(v / 4 + w / 3)
    assert (found.center, found.half_width) == pytest.approx((m - n, half_width))
    assert (found.low, found.high) == pytest.approx((m - n - half_width, m - n + half_width))


def test_paired_interval_is_that_of_the_differences() -> None:
    found = paired_interval([1, -1], [FIRST[:3], SECOND])
    assert found == mean_interval([a - b for a, b in zip(FIRST, SECOND, strict=False)])
    assert found.half_width == pytest.approx(
        slow.TABLE[2] * math.sqrt(slow.mean_and_variance([1.1, 0.5, 1.2])[1] / 3), rel=1e-4
    )


@pytest.mark.parametrize("right", [(950, 900), (1000, 1000), (0, 3)])
def test_proportion_interval_is_agresti_caffo(right: tuple[int, int]) -> None:
    found = proportion_interval([1, -1], [right[0] / 1000, right[1] / 1000], [1000, 1000])
    assert (found.low, found.high) == pytest.approx(slow.agresti_caffo(right, (1000, 1000)), abs=1e-7)


def test_equal_values_have_an_interval_of_zero_width() -> None:
    found = welch_interval([1, -1], [[5, 5, 5], [3, 3, 3, 3]])
    assert (found.low, found.center, found.high) == (2, 2, 2)


@pytest.mark.parametrize("freedom", [1.0, 2.0, 2.35, 6.2, 55.5, 1e7, math.inf])
@pytest.mark.parametrize("t", [0.0, -0.5, 2.0, 6.0])
def test_p_value_is_the_tail_probability(freedom: float, t: float) -> None:
    expected = 1 - slow.area_between(freedom, abs(t)) if freedom < 100 else 2 * NormalDist().cdf(-abs(t))
    assert two_sided_p(t, freedom) == pytest.approx(expected, rel=1e-4, abs=1e-9)


def test_p_value_is_5_percent_at_the_ends_of_the_interval() -> None:
    shares = proportion_interval([1, -1], [0.95, 0.9], [1000, 500])
    for found in (welch_interval([1, -1], [FIRST, SECOND]), mean_interval(FIRST), shares):
        assert [found.p_value(end) for end in (found.low, found.center, found.high)] == pytest.approx([0.05, 1, 0.05])
    same = mean_interval([5.0, 5.0, 5.0])
    assert (same.p_value(5.0), same.p_value(4.0)) == (1, 0)


def test_holm_agrees_with_the_step_down_procedure() -> None:
    """Reject the smallest p at level/m, the next at level/(m - 1), and so on until one is not rejected."""
    draw = np.random.default_rng(0)
    for _ in range(200):
        p_values = (draw.random(draw.integers(1, 6)) ** 3).tolist()
        level = float(draw.random() / 2)
        rejected = set[int]()
        for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
            if p_values[place] > level / (len(p_values) - rank):
                break
            rejected.add(place)
        assert {place for place, p in enumerate(holm_adjust(p_values)) if p <= level} == rejected


def test_intervals_cover_the_true_value_in_95_percent_of_samples() -> None:
    """Drawn a thousand times: Student's and Welch's over normal seeds, and that of shares over images."""
    draw = np.random.default_rng(0)
    count = 1000
    held = dict.fromkeys(("paired", "welch", "shares"), 0)
    for _ in range(count):
        a, b = draw.normal(1, 1, 3), draw.normal(0, 2, 4)
        paired = paired_interval([1, -1], [a.tolist(), b[:3].tolist()])
        welch = welch_interval([1, -1], [a.tolist(), b.tolist()])
        shares = proportion_interval([1, -1], (draw.binomial(500, (0.98, 0.9)) / 500).tolist(), [500, 500])
        held["paired"] += paired.low < 1 < paired.high
        held["welch"] += welch.low < 1 < welch.high
        held["shares"] += shares.low < 0.08 < shares.high
    for name, times in held.items():
        assert times / count == pytest.approx(0.95, abs=0.025), name
