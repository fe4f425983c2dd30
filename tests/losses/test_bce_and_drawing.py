from __future__ import annotations

import math

import pytest
import torch

from torchcaps.errors import TorchcapsError
from torchcaps.losses import losses, one_hot, reconstruction_loss
from torchcaps.models import create_model
from torchcaps.train import resolve
from torchcaps.train.objective import Objective


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
    margins = {"margin", "margin-0.7", "margin-0.6"}
    assert {record.name for record in losses if not record.single_label} == {*margins, "bce"}


def test_drawing_error_as_sum_or_mean_over_pixels() -> None:
    drawn, images = torch.zeros(2, 1, 3, 3), torch.ones(2, 1, 3, 3)
    images[1] = 2.0
    assert reconstruction_loss(drawn, images).item() == pytest.approx((9 + 36) / 2)
    assert reconstruction_loss(drawn, images, over_pixels="mean").item() == pytest.approx((1 + 4) / 2)
    with pytest.raises(TorchcapsError, match="reconstruction 'total' is unknown"):
        reconstruction_loss(drawn, images, over_pixels="total")


@pytest.mark.parametrize("decoder", ["conditional", "normal"])
def test_a_decoder_without_a_label_draws_both_digits_at_once(decoder: str) -> None:
    """gu2021, table 4: a conditional decoder draws each digit on its own, a normal one the picture itself."""
    options = {"filters": 8, "types": 1, "hidden": [8, 8], "decoder": decoder}
    model = create_model("capsnet", image_size=20, size="laptop", **options).eval()
    config = resolve(model="capsnet", data="multimnist", options=options, reconstruction_weight=1.0)
    digits, labels = torch.rand(3, 2, 1, 20, 20), torch.tensor([[1, 2], [3, 4], [5, 0]])
    images = digits.sum(1).clamp(max=1)
    with torch.no_grad():
        total, output = Objective(model, config)(images, labels, digits, 0.0)
        margin = losses.get("margin").compute(output.scores, output.logits, one_hot(labels, 10), 0.0)
        if decoder == "normal":
            expected = reconstruction_loss(model.reconstruct(output, labels[:, 0]), images)
        else:
            drawn = [
                reconstruction_loss(model.reconstruct(output, labels[:, each]), digits[:, each]) for each in (0, 1)
            ]
            expected = drawn[0] + drawn[1]
    assert (total - margin).item() == pytest.approx(expected.item(), rel=1e-4)
