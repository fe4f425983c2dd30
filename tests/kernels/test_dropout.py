"""Dropout with a hashed mask: the right fraction, no pattern, and a gradient through the same mask."""

from __future__ import annotations

import pytest
import torch

from torchcaps.kernels.dispatch import use_kernels
from torchcaps.kernels.dropout import BLOCK, dropout


@pytest.mark.parametrize("probability", [0.1, 0.5, 0.9])
def test_fraction_and_scale(probability: float) -> None:
    torch.manual_seed(0)
    count = 200_000
    dropped = dropout(torch.ones(count), probability, True)
    kept = (dropped > 0).sum().item()
    assert abs(kept - count * (1 - probability)) < 5 * (count * probability * (1 - probability)) ** 0.5
    torch.testing.assert_close(dropped[dropped > 0], torch.full((kept,), 1 / (1 - probability)))


def test_neighbors_rows_and_calls_are_independent() -> None:
    """Correlations of a fair mask are within five standard deviations of zero, at all distances looked at."""
    torch.manual_seed(0)
    count = 2**17
    first, second = (dropout(torch.ones(count), 0.5, True) - 1 for _ in range(2))
    pairs = [(first, second)] + [(first[:-lag], first[lag:]) for lag in (1, 2, 3, 16, 64, 256, 4096, 65536)]
    for one, other in pairs:
        assert abs((one * other).mean().item()) < 5 * len(one) ** -0.5


def test_gradient_goes_through_the_same_mask() -> None:
    values = torch.randn(3, BLOCK, requires_grad=True)
    dropped = dropout(values, 0.3, True)
    (slope,) = torch.autograd.grad(dropped.sum(), values, create_graph=True)
    (alone,) = torch.autograd.grad(dropped.sum(), values)
    torch.testing.assert_close(slope, alone)
    torch.testing.assert_close(dropped, values * slope)


def test_the_seed_alone_decides_and_threads_do_not() -> None:
    values, results = torch.randn(5, BLOCK + 1).t(), []
    for threads in (1, 1, 2):
        torch.set_num_threads(threads)
        torch.manual_seed(3)
        results.append(dropout(values, 0.5, True))
    torch.set_num_threads(1)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])
    assert not torch.equal(dropout(values, 0.5, True), results[0])


def test_nothing_is_dropped_in_evaluation_and_plain_is_pytorchs() -> None:
    values = torch.randn(10)
    assert torch.equal(dropout(values, 0.5, False), values)
    assert torch.equal(dropout(values, 0.0, True), values)
    with use_kernels("plain"):
        torch.manual_seed(0)
        own = dropout(values, 0.5, True)
        torch.manual_seed(0)
        assert torch.equal(own, torch.nn.functional.dropout(values, 0.5))


def test_an_empty_tensor() -> None:
    assert dropout(torch.empty(0, 3), 0.5, True).shape == (0, 3)
