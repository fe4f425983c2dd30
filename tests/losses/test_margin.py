from __future__ import annotations

import pytest
import torch

from tests.reference import losses as reference
from torchcaps.losses import losses, margin_loss, one_hot, reconstruction_loss


def test_margin_loss_agrees_with_the_reference() -> None:
    scores, labels = torch.rand(6, 10), torch.randint(0, 10, (6, 2))
    targets = one_hot(labels, 10)
    expected = reference.margin_loss(scores.tolist(), targets.int().tolist())
    assert margin_loss(scores, targets).item() == pytest.approx(expected, rel=1e-5)


def test_margin_loss_gradient() -> None:
    scores = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
    targets = one_hot(torch.tensor([0, 3, 1]), 4).double()
    assert torch.autograd.gradcheck(lambda s: margin_loss(s, targets), scores)


def test_reconstruction_loss_is_a_sum_over_pixels() -> None:
    drawn, wanted = torch.rand(3, 2, 4, 4), torch.rand(3, 2, 4, 4)
    expected = reference.squared_error(drawn.flatten(1).tolist(), wanted.flatten(1).tolist())
    assert reconstruction_loss(drawn, wanted).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("name", "upper"), [("margin", 0.9), ("margin-0.7", 0.7), ("margin-0.6", 0.6)])
def test_upper_margins_by_name(name: str, upper: float) -> None:
    scores, targets = torch.tensor([[0.5, 0.3]]), torch.tensor([[1.0, 0.0]])
    expected = (upper - 0.5) ** 2 + 0.5 * (0.3 - 0.1) ** 2
    assert losses.get(name).compute(scores, scores, targets, 0.0).item() == pytest.approx(expected)
