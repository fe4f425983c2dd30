from __future__ import annotations

import math

import pytest
import torch

from torchcaps.errors import TorchcapsError
from torchcaps.losses import losses, one_hot, reconstruction_loss


def test_bce_is_summed_over_classes_and_averaged_over_images() -> None:
    logits = torch.tensor([[2.0, -1.0, 0.5], [0.0, 3.0, -2.0]])
    targets = one_hot(torch.tensor([[0, 2], [1, 2]]), 3)
    total = 0.0
    for row, wanted in zip(logits.tolist(), targets.tolist(), strict=True):
        for logit, target in zip(row, wanted, strict=True):
            probability = 1 / (1 + math.exp(-logit))
            total -= math.log(probability if target else 1 - probability)
    loss = losses.get("bce").compute(logits.sigmoid(), logits, targets, 0.0)
    assert loss.item() == pytest.approx(total / 2, rel=1e-5)


def test_only_losses_that_make_sense_for_two_labels_say_so() -> None:
    assert {record.name for record in losses if not record.single_label} == {"margin", "bce"}


def test_drawing_error_as_sum_or_mean_over_pixels() -> None:
    drawn, images = torch.zeros(2, 1, 3, 3), torch.ones(2, 1, 3, 3)
    images[1] = 2.0
    assert reconstruction_loss(drawn, images).item() == pytest.approx((9 + 36) / 2)
    assert reconstruction_loss(drawn, images, over_pixels="mean").item() == pytest.approx((1 + 4) / 2)
    with pytest.raises(TorchcapsError, match="reconstruction 'total' is unknown"):
        reconstruction_loss(drawn, images, over_pixels="total")
