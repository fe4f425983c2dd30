from __future__ import annotations

import pytest
import torch

from tests.reference import losses as reference
from torchcaps.errors import TorchcapsError
from torchcaps.losses import losses, one_hot, spread_loss, spread_margin


@pytest.mark.parametrize("margin", [0.2, 0.55, 0.9])
def test_agrees_with_the_reference(margin: float) -> None:
    scores, labels = torch.rand(8, 5), torch.randint(0, 5, (8,))
    expected = reference.spread_loss(scores.tolist(), labels.tolist(), margin)
    assert spread_loss(scores, one_hot(labels, 5), margin=margin).item() == pytest.approx(expected, rel=1e-5)


def test_margin_grows_linearly_and_stays_in_its_bounds() -> None:
    got = [spread_margin(progress) for progress in (-1.0, 0.0, 0.25, 0.5, 1.0, 2.0)]
    assert got == pytest.approx([0.2, 0.2, 0.375, 0.55, 0.9, 0.9])


def test_the_record_follows_the_training() -> None:
    scores, targets = torch.rand(4, 5), one_hot(torch.tensor([0, 1, 2, 3]), 5)
    for progress in (0.0, 0.4, 1.0):
        got = losses.get("spread").compute(scores, scores, targets, progress=progress)
        assert got == spread_loss(scores, targets, margin=spread_margin(progress))


def test_gradient_in_double_precision() -> None:
    scores = torch.rand(6, 5, dtype=torch.float64, requires_grad=True)
    targets = one_hot(torch.randint(0, 5, (6,)), 5).double()
    assert torch.autograd.gradcheck(lambda s: spread_loss(s, targets), scores)


def test_two_labels_are_refused() -> None:
    with pytest.raises(TorchcapsError, match="spread loss needs exactly one true class per image"):
        spread_loss(torch.rand(2, 5), one_hot(torch.tensor([[0, 1], [2, 3]]), 5))
    assert losses.get("spread").single_label
