"""Functions of vectors agree with numpy's."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba")

from torchcaps.kernels.numba_support import compiled
from torchcaps.kernels.simd import (
    LANES,
    exponential,
    logarithm,
    magnitude,
    splat,
    sum_lanes,
    transpose_lanes,
    vload,
    vload4,
    vstore,
    vstore4,
    where_below,
)


@compiled
def apply(values, exponentials, logarithms):
    for i in range(values.shape[0]):
        vstore(exponentials, (i,), exponential(vload(values, (i,))))
        vstore(logarithms, (i,), logarithm(magnitude(vload(values, (i,)))))


@compiled
def arithmetic(values, result):
    two = np.float32(2)
    a, b, c, d = vload4(values, (0,))
    vstore4(result, (0,), (a + two * b - c / d, max(a, b), min(a, two), where_below(a, splat(two), b)))
    vstore(result, (4,), sum_lanes((a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d)))


@compiled
def transpose_second(values):
    transpose_lanes(values, (1, 0))


def test_transpose_lanes() -> None:
    values = np.arange(3 * LANES * LANES, dtype=np.float32).reshape(3, LANES, LANES)
    expected = values.copy()
    expected[1] = expected[1].T
    transpose_second(values)
    np.testing.assert_array_equal(values, expected)


def test_exponential_and_logarithm() -> None:
    values = np.linspace(-86, 88, 64 * LANES, dtype=np.float32).reshape(-1, LANES)
    exponentials, logarithms = np.empty((2, *values.shape), np.float32)
    apply(values, exponentials, logarithms)
    exact = values.astype(np.float64)
    np.testing.assert_allclose(exponentials, np.exp(exact), rtol=5e-7)
    np.testing.assert_allclose(logarithms, np.log(np.abs(exact)), rtol=2e-7, atol=2e-7)


def test_logarithm_of_any_size() -> None:
    values = np.geomspace(1e-37, 1e37, 64 * LANES, dtype=np.float32).reshape(-1, LANES)
    exponentials, logarithms = np.empty((2, *values.shape), np.float32)
    apply(values, exponentials, logarithms)
    np.testing.assert_allclose(logarithms, np.log(values.astype(np.float64)), rtol=2e-7, atol=2e-7)


def test_arithmetic() -> None:
    a, b, c, d = values = np.random.default_rng(0).normal(size=(4, LANES)).astype(np.float32)
    result = np.empty((5, LANES), np.float32)
    arithmetic(values, result)
    np.testing.assert_allclose(result[0], a + 2 * b - c / d, rtol=1e-5, atol=1e-6)
    assert (result[1] == np.maximum(a, b)).all()
    assert (result[2] == np.minimum(a, 2)).all()
    assert (result[3] == np.where(a < 2, b, 0)).all()
    np.testing.assert_allclose(result[4], np.tile(values.sum(1), 4), rtol=1e-5, atol=1e-6)


def test_comparisons_keep_numbers_that_are_not_finite() -> None:
    values = np.full((4, LANES), np.nan, np.float32)
    result = np.zeros((5, LANES), np.float32)
    arithmetic(values, result)
    assert np.isnan(result[:3]).all()
