from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from tests.reference.competition import windows
from torchcaps.layers import CapsuleLayer, Capsules, ConvTransform
from torchcaps.routing import create_routing


def em_layer() -> CapsuleLayer:
    transform = ConvTransform((6, 5), 2, 3, kernel=3)
    routing = create_routing("em", replace(transform.shape, activations=True))
    return CapsuleLayer(transform, routing, nn.Identity())


def test_the_routing_gets_the_activation_of_the_child_that_votes() -> None:
    layer = em_layer()
    capsules = Capsules(torch.randn(2, 6, 5, 2, 16), torch.rand(2, 6, 5, 2))
    assert capsules.activation is not None
    seen = torch.tensor(
        [[[image[c].item() for c in slots] for slots in windows(6, 5, 2, 3, 1)] for image in capsules[1]]
    )
    expected = layer.routing(
        layer.transform(capsules), seen, child_index=layer.transform.child_index, nonlinearity=nn.Identity()
    )
    got = layer(capsules)
    torch.testing.assert_close(got.pose, expected.pose.view(2, 4, 3, 3, 16))
    torch.testing.assert_close(got.activation, expected.activation.view(2, 4, 3, 3))


def test_couplings_come_on_request() -> None:
    layer = em_layer()
    couplings: list[Tensor] = []
    layer(Capsules(torch.randn(2, 6, 5, 2, 16), torch.rand(2, 6, 5, 2)), couplings)
    assert [tuple(each.shape) for each in couplings] == [(2, 12, 18, 3)] * 3
