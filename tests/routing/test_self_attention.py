from __future__ import annotations

import torch

from tests.reference import routings as reference
from torchcaps.functional import exponential_squash
from torchcaps.layers import DepthwisePrimaryCapsules
from torchcaps.routing import SelfAttentionRouting
from torchcaps.routing.base import LayerShape

SHAPE = LayerShape(1, 5, 3, 6)


def test_agrees_with_the_reference() -> None:
    torch.manual_seed(0)
    routing, votes = SelfAttentionRouting(SHAPE).double(), torch.randn(2, 5, 3, 6).double()
    torch.nn.init.normal_(routing.bias)
    routed = routing(votes)
    for image in range(2):
        pose, couplings = reference.self_attention(votes[image].tolist(), routing.bias.tolist())
        torch.testing.assert_close(routed.pose[image], torch.tensor(pose).double())
        torch.testing.assert_close(routed.couplings[0][image], torch.tensor(couplings).double())


def test_agreeing_votes_get_the_larger_couplings() -> None:
    votes = torch.zeros(1, 5, 3, 6)
    votes[:, :, 0] = 1.0  # all children agree on parent 0
    votes[:, :, 1] = torch.tensor([1.0, -1.0, 1.0, -1.0, 0.0]).view(5, 1)  # and disagree on parent 1
    (couplings,) = SelfAttentionRouting(SHAPE)(votes).couplings
    assert (couplings[0, :, 0] > couplings[0, :, 1]).all()
    torch.testing.assert_close(couplings.sum(2), torch.ones(1, 5))


def test_depthwise_primary_capsules_are_the_grouped_convolution() -> None:
    layer, features = DepthwisePrimaryCapsules(4, 3, (5, 6), nonlinearity=exponential_squash), torch.randn(2, 12, 5, 6)
    expected = exponential_squash(layer.conv(features).reshape(2, 1, 1, 4, 3))
    torch.testing.assert_close(layer(features).pose, expected)
