from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from tests.reference import routings as reference
from torchcaps.errors import TorchcapsError
from torchcaps.routing import InvertedAttentionRouting, create_routing
from torchcaps.routing.base import LayerShape

SHAPE = LayerShape(1, 5, 3, 6)


@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_agrees_with_the_reference(iterations: int) -> None:
    torch.manual_seed(0)
    votes = torch.randn(2, 5, 3, 6).double()
    routed = InvertedAttentionRouting(SHAPE, iterations=iterations)(votes, nonlinearity=layer_norm)
    for image in range(2):
        pose, couplings = reference.inverted_attention(votes[image].tolist(), iterations)
        torch.testing.assert_close(routed.pose[image], torch.tensor(pose).double(), rtol=1e-7, atol=1e-8)
        assert len(routed.couplings) == iterations
        torch.testing.assert_close(routed.couplings[-1][image], torch.tensor(couplings).double(), rtol=1e-7, atol=1e-8)


def layer_norm(pose: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(pose, pose.shape[-1:])


def test_parents_compete_at_each_position() -> None:
    routing = InvertedAttentionRouting(LayerShape(2, 5, 3, 6))
    couplings = routing(torch.randn(2, 2, 5, 3, 6), nonlinearity=layer_norm).couplings
    assert all(torch.allclose(each.sum(3), torch.ones(2, 2, 5)) for each in couplings)
    torch.testing.assert_close(couplings[0], torch.full((2, 2, 5, 3), 1 / 3))
    assert math.isclose(float(couplings[0].sum()), 2 * 2 * 5, rel_tol=1e-5)


def test_no_iteration_is_refused() -> None:
    with pytest.raises(TorchcapsError, match="at least 1 iteration, got 0"):
        create_routing("inverted-attention", SHAPE, iterations=0)
