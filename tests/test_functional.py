from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.reference import dynamic as reference
from torchcaps.functional import exponential_squash, log_odds, safe_norm, softmax_over_parents, squash

# Any finite float32 whose square may overflow or vanish.
NUMBERS = st.floats(-(2.0**100), 2.0**100, width=32)


def test_squash_agrees_with_the_equation() -> None:
    vectors = torch.randn(50, 16) * torch.logspace(-4, 4, 50).unsqueeze(1)
    expected = torch.tensor([reference.squash(row) for row in vectors.tolist()])
    torch.testing.assert_close(squash(vectors), expected, rtol=1e-5, atol=1e-12)


def test_squash_at_zero_is_zero_with_a_finite_gradient() -> None:
    zero = torch.zeros(3, 8, requires_grad=True)
    result = squash(zero)
    result.sum().backward()
    assert torch.equal(result, torch.zeros(3, 8))
    assert torch.isfinite(zero.grad).all()


def test_an_unguarded_squash_would_be_caught() -> None:
    zero = torch.zeros(3, 8, requires_grad=True)
    length = zero.norm(dim=-1, keepdim=True)
    (length**2 / (1 + length**2) * zero / length).sum().backward()
    assert not torch.isfinite(zero.grad).all()


@given(st.lists(NUMBERS, min_size=1, max_size=6))
def test_norm_and_squash_are_finite_for_any_finite_vector(numbers: list[float]) -> None:
    vector = torch.tensor(numbers, requires_grad=True)
    (safe_norm(vector) + squash(vector).sum()).backward()
    assert torch.isfinite(vector.grad).all()
    # 1.000001: a unit vector rounded to float32 may come out longer by a bit.
    assert safe_norm(squash(vector)) <= 1.000001
    expected = math.hypot(*numbers)
    assert safe_norm(vector).item() == pytest.approx(expected, rel=1e-5, abs=1e-14)


def test_gradients_in_double_precision() -> None:
    vectors = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(squash, vectors)
    assert torch.autograd.gradcheck(safe_norm, vectors)


def test_softmax_shares_each_child_among_its_parents() -> None:
    shares = softmax_over_parents(torch.randn(2, 1, 7, 5))
    torch.testing.assert_close(shares.sum(3), torch.ones(2, 1, 7))


def test_log_odds_is_finite_at_the_ends() -> None:
    assert torch.isfinite(log_odds(torch.tensor([0.0, 1.0]))).all()
    torch.testing.assert_close(log_odds(torch.tensor([0.25])), torch.tensor([-math.log(3)]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("function", [safe_norm, squash, exponential_squash])
def test_half_precision_is_float32_rounded(function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    """Squares of float16 numbers above 256 overflow, and the small constants of these functions are zero in it."""
    rows = torch.cat([torch.zeros(1, 8), torch.full((1, 8), 6e-8), torch.randn(3, 8), torch.full((1, 8), 2e4)])
    vectors = rows.to(dtype).requires_grad_()
    result = function(vectors)
    assert torch.equal(result, function(vectors.detach().float()).to(dtype))
    result.sum().backward()
    assert vectors.grad is not None
    assert vectors.grad.isfinite().all()
