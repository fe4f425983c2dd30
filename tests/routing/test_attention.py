from __future__ import annotations

import pytest
import torch

from tests.reference import routings as reference
from torchcaps.errors import TorchcapsError
from torchcaps.functional import squash
from torchcaps.routing import create_routing
from torchcaps.routing.attention import AttentionRouting
from torchcaps.routing.base import LayerShape

SHAPE = LayerShape(4, 5, 3, 6)


@pytest.mark.parametrize("temperature", [1.0, 0.25])
def test_agrees_with_the_reference_at_every_position(temperature: float) -> None:
    routing, votes = AttentionRouting(SHAPE, temperature=temperature), torch.randn(2, 4, 5, 3, 6)
    # kernel (J, I*D, I) to [parent][child it is about][child it looks at][number]
    kernel = routing.kernel.view(3, 5, 6, 5).permute(0, 3, 1, 2).tolist()
    routed = routing(votes, nonlinearity=squash)
    for image in range(2):
        for position in range(4):
            pose, couplings = reference.attention(votes[image, position].tolist(), kernel, temperature)
            torch.testing.assert_close(routed.pose[image, position], torch.tensor(pose), rtol=1e-5, atol=1e-6)
            got = routed.couplings[0][image, position]
            torch.testing.assert_close(got, torch.tensor(couplings), rtol=1e-5, atol=1e-6)


def test_softmax_runs_over_children_and_not_over_parents() -> None:
    votes = torch.randn(2, 4, 5, 3, 6)
    (couplings,) = AttentionRouting(SHAPE)(votes, nonlinearity=squash).couplings
    torch.testing.assert_close(couplings.sum(2), torch.ones(2, 4, 3))
    assert not torch.allclose(couplings.sum(3), torch.ones(2, 4, 5), atol=1e-2)


def test_the_kernel_is_exactly_the_paper_s() -> None:
    """N_in x (D x N_in) numbers for each output channel, no bias, the same at every place."""
    parameters = list(AttentionRouting(LayerShape(49, 8, 10, 32)).parameters())
    assert [parameter.numel() for parameter in parameters] == [10 * 8 * (32 * 8)]


def test_a_vote_reaches_the_attention_of_its_own_place_and_parent_only() -> None:
    routing, votes = AttentionRouting(SHAPE), torch.randn(1, 4, 5, 3, 6)
    changed = votes.clone()
    changed[0, 2, 1, 0] += 1
    before, after = (routing(each, nonlinearity=squash).couplings[0] for each in (votes, changed))
    differs = (before - after).abs().amax((0, 2)) > 1e-6  # (P, J)
    assert differs.nonzero().tolist() == [[2, 0]]


def test_too_many_children_are_refused_in_one_sentence() -> None:
    with pytest.raises(TorchcapsError, match=r"over 1152 children .* kernel of 212,336,640 elements.*use fewer types"):
        create_routing("attention", LayerShape(1, 1152, 10, 16))
    with pytest.raises(TorchcapsError, match="temperature above 0, got 0"):
        create_routing("attention", SHAPE, temperature=0)
