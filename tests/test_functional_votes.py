from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchcaps.functional import (
    agreement,
    common_agreement,
    commonly_weighted_votes,
    exponential_squash,
    weighted_votes,
)


@pytest.mark.parametrize("positions", [1, 3])
def test_common_couplings_are_couplings_repeated_for_every_image(positions: int) -> None:
    votes, couplings = torch.randn(5, positions, 7, 4, 6), torch.randn(positions, 7, 4)
    expected = weighted_votes(couplings.expand(5, -1, -1, -1), votes)
    torch.testing.assert_close(commonly_weighted_votes(couplings, votes), expected)
    poses = torch.randn(5, positions, 4, 6)
    torch.testing.assert_close(common_agreement(votes, poses), agreement(votes, poses).sum(0))


def test_common_forms_take_votes_in_any_memory_order() -> None:
    votes, couplings, poses = (
        torch.randn(7, 5, 4, 6).transpose(0, 1).unsqueeze(1),
        torch.randn(1, 7, 4),
        torch.randn(5, 1, 4, 6),
    )
    same = votes.contiguous()
    torch.testing.assert_close(commonly_weighted_votes(couplings, votes), commonly_weighted_votes(couplings, same))
    torch.testing.assert_close(common_agreement(votes, poses), common_agreement(same, poses))


def test_gradients_in_double_precision() -> None:
    votes = torch.randn(3, 1, 4, 2, 3, dtype=torch.float64, requires_grad=True)
    couplings = torch.randn(1, 4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(commonly_weighted_votes, (couplings, votes))
    vectors = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(exponential_squash, vectors)


def test_exponential_squash_agrees_with_the_equation() -> None:
    vectors = torch.randn(50, 8) * torch.logspace(-4, 2, 50).unsqueeze(1)
    for vector, squashed in zip(vectors.tolist(), exponential_squash(vectors), strict=True):
        length = math.sqrt(sum(number**2 for number in vector))
        expected = [-math.expm1(-length) * number / length for number in vector]
        torch.testing.assert_close(squashed, torch.tensor(expected), rtol=1e-5, atol=1e-7)


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=3, max_size=3))
def test_exponential_squash_is_finite_for_any_finite_vector(numbers: list[float]) -> None:
    vector = torch.tensor(numbers, requires_grad=True)
    squashed = exponential_squash(vector)
    squashed.sum().backward()
    assert squashed.isfinite().all()
    assert vector.grad.isfinite().all()
    assert squashed.detach().double().norm() <= 1 + 1e-6
