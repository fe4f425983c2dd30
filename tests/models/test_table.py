from __future__ import annotations

import torch

from torchcaps.models import models
from torchcaps.models.registry import model_rows, routing_rows
from torchcaps.routing import routings


def test_a_row_for_every_model_with_the_true_counts() -> None:
    rows = {row.name: row for row in model_rows()}
    assert list(rows) == models.names()
    assert (rows["capsnet"].image, rows["capsnet"].paper_parameters) == ("28x28x1", 8_215_568)
    assert (rows["g-capsnet-multi"].image, rows["g-capsnet-multi"].paper_parameters) == ("32x32x3", 751_008)
    built = models.get("ar-capsnet").build((1, 28, 28), 10, **models.get("ar-capsnet").laptop)
    assert rows["ar-capsnet"].laptop_parameters == sum(parameter.numel() for parameter in built.parameters())


def test_a_row_for_every_routing() -> None:
    rows = {row.name: row for row in routing_rows()}
    assert list(rows) == routings.names()
    assert rows["trainable"].parameters == 2880
    assert rows["discriminative-l1"].needs == "labels in training"


def test_counting_allocates_nothing() -> None:
    """Together the networks of the papers have far more parameters than these tests may use memory for."""
    assert sum(row.paper_parameters for row in model_rows()) > 100_000_000
    assert torch.empty(1).device.type == "cpu"  # and the default device is left alone
