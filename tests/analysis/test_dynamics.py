"""Starved parents and static couplings."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from torchcaps.analysis.dynamics import describe_dynamics, measure_dynamics
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model, create_model
from torchcaps.routing import Routed, Routing

TINY: dict[str, Any] = {"size": "laptop", "filters": 4, "types": 2, "kernel": 5, "decoder": "none", "image_size": 12}


class Chosen(Routing):
    """Couplings that a test gives for every image."""

    given: Tensor

    def forward(self, votes: Tensor, activation: Tensor | None, **_: object) -> Routed:
        return Routed(votes.mean(2), couplings=[self.given[: len(votes)]])


def with_couplings(couplings: Tensor) -> Model:
    model = create_model("capsnet", **TINY)
    layer = next(iter(model.capsules))
    routing = Chosen(layer.routing.shape)
    routing.given = couplings
    layer.routing = routing
    return model


def test_agrees_with_variances_written_out() -> None:
    torch.manual_seed(0)
    couplings = torch.rand(7, 1, 8, 10)
    couplings[..., 3] *= 0.01
    (found,) = measure_dynamics(with_couplings(couplings), torch.rand(7, 1, 12, 12))
    values = couplings.double().reshape(7, 80)
    means = values.mean(0)
    within = ((values - means) ** 2).mean()
    between = ((means - means.mean()) ** 2).mean()
    assert found.static == pytest.approx(float(between / (between + within)), rel=1e-6)
    assert found.starved == pytest.approx(0.1)
    assert found.parents == 10
    assert found.moved == 0


def test_the_same_couplings_for_every_image_are_static_and_equal_ones_have_no_share() -> None:
    same = torch.rand(1, 1, 8, 10).expand(5, 1, 8, 10)
    (found,) = measure_dynamics(with_couplings(same), torch.rand(5, 1, 12, 12))
    assert found.static == pytest.approx(1.0)
    (equal,) = measure_dynamics(create_model("capsnet", routing="uniform", **TINY), torch.rand(5, 1, 12, 12))
    assert equal.static is None
    assert equal.starved == 0
    assert "all couplings equal" in describe_dynamics([equal])


def test_dynamic_routing_depends_on_the_image_and_moves() -> None:
    torch.manual_seed(0)
    (found,) = measure_dynamics(create_model("capsnet", **TINY), torch.rand(30, 1, 12, 12))
    assert found.static is not None
    assert 0 < found.static < 1
    assert found.moved > 0


def test_one_image_and_plain_networks_are_refused() -> None:
    with pytest.raises(TorchcapsError, match="at least 2 images, got 1"):
        measure_dynamics(create_model("capsnet", **TINY), torch.rand(1, 1, 12, 12))
    with pytest.raises(TorchcapsError, match="has no capsule layers"):
        measure_dynamics(create_model("lenet"), torch.rand(2, 1, 28, 28))
