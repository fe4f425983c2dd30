from __future__ import annotations

import pytest
import torch

from tests.reference import routings as reference
from torchcaps.errors import TorchcapsError
from torchcaps.models import create_model
from torchcaps.routing import HeinsenRouting, create_routing
from torchcaps.routing.base import LayerShape

SHAPE = LayerShape(2, 5, 3, 4, activations=True)


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_agrees_with_the_reference_at_every_position(iterations: int) -> None:
    torch.manual_seed(0)
    routing = HeinsenRouting(SHAPE, iterations=iterations, variance_floor=0.1).double()
    torch.nn.init.normal_(routing.benefit)
    torch.nn.init.normal_(routing.cost)
    votes, activation = torch.randn(2, 2, 5, 3, 4).double(), torch.rand(2, 2, 5).double()
    routed = routing(votes, activation)
    assert routed.activation is not None
    assert len(routed.couplings) == iterations
    for image in range(2):
        for position in range(2):
            at = (image, position)
            pose, active, couplings = reference.heinsen(
                votes[at].tolist(),
                activation[at].tolist(),
                routing.benefit.tolist(),
                routing.cost.tolist(),
                iterations,
                routing.variance_floor,
            )
            torch.testing.assert_close(routed.pose[at], torch.tensor(pose).double(), rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(routed.activation[at], torch.tensor(active).double(), rtol=1e-5, atol=1e-6)
            torch.testing.assert_close(routed.couplings[-1][at], torch.tensor(couplings).double(), rtol=1e-5, atol=1e-6)


def test_gradients_in_double_precision() -> None:
    torch.manual_seed(0)
    routing = HeinsenRouting(LayerShape(1, 4, 2, 3, activations=True), variance_floor=0.1).double()
    votes = torch.randn(1, 1, 4, 2, 3, dtype=torch.float64, requires_grad=True)
    activation = torch.rand(1, 1, 4, dtype=torch.float64, requires_grad=True)

    def outcome(votes: torch.Tensor, activation: torch.Tensor, *_: torch.Tensor) -> tuple[torch.Tensor, ...]:
        routed = routing(votes, activation)
        assert routed.activation is not None
        return routed.pose, routed.activation

    assert torch.autograd.gradcheck(outcome, (votes, activation, routing.benefit, routing.cost))


def test_using_a_child_pays_and_ignoring_it_costs() -> None:
    routing = HeinsenRouting(SHAPE)
    votes, activation = torch.randn(1, 2, 5, 3, 4), torch.rand(1, 2, 5)
    with torch.no_grad():
        before = routing(votes, activation).activation
        routing.benefit[:, 0] += 1
        routing.cost[:, 1] += 1
        after = routing(votes, activation).activation
    assert (after[..., 0] > before[..., 0]).all()
    assert (after[..., 1] < before[..., 1]).all()


def test_couplings_of_a_child_sum_to_one_and_silent_children_do_not_count() -> None:
    routing = HeinsenRouting(SHAPE)
    votes, activation = torch.randn(2, 2, 5, 3, 4), torch.rand(2, 2, 5)
    activation[:, :, 2] = 0
    changed = votes.clone()
    changed[:, :, 2] += 5.0
    routed, other = routing(votes, activation), routing(changed, activation)
    torch.testing.assert_close(routed.couplings[-1].sum(3), torch.ones(2, 2, 5))
    torch.testing.assert_close(routed.pose, other.pose, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(routed.activation, other.activation, rtol=1e-3, atol=1e-3)


def test_what_is_wrong_is_said_in_one_sentence() -> None:
    with pytest.raises(TorchcapsError, match="needs the children's activations"):
        create_routing("heinsen", LayerShape(1, 5, 3, 4))
    with pytest.raises(TorchcapsError, match="at least 1 iteration and a positive variance_floor"):
        create_routing("heinsen", SHAPE, iterations=0)
    model = create_model("matrix-capsnet", image_size=28, size="laptop", routing="heinsen")
    assert model(torch.rand(2, 1, 28, 28)).scores.shape == (2, 10)
