"""Fused attention routing agrees with the plain implementation."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.kernels.test_em import worst
from torchcaps.kernels.attention import MOST_PAIRS
from torchcaps.kernels.dispatch import use_kernels
from torchcaps.routing import create_routing
from torchcaps.routing.base import LayerShape, Routed, Routing


def make(children: int = 4, parents: int = 3, size: int = 16) -> tuple[Routing, Tensor]:
    torch.manual_seed(children)
    routing = create_routing("attention", LayerShape(6, children, parents, size), temperature=0.5)
    return routing, torch.randn(5, 6, children, parents, size, requires_grad=True)


def gradients(routing: Routing, votes: Tensor) -> tuple[Routed, tuple[Tensor, ...]]:
    routed = routing(votes)
    slopes = torch.randn(routed.pose.shape, generator=torch.Generator().manual_seed(1))
    return routed, torch.autograd.grad((routed.pose * slopes).sum(), [votes, *routing.parameters()])


@pytest.mark.parametrize("shape", [(4, 3, 16), (1, 2, 5), (4, MOST_PAIRS // 4, 3), (1, MOST_PAIRS + 1, 3)])
def test_agrees_with_the_plain_form(shape: tuple[int, int, int]) -> None:
    routing, votes = make(*shape)
    fused, fused_gradients = gradients(routing, votes)
    with use_kernels("plain"):
        plain, plain_gradients = gradients(routing, votes)
    assert worst([fused.pose, *fused.couplings], [plain.pose, *plain.couplings]) < 1e-5
    assert worst(fused_gradients, plain_gradients) < 1e-5


def test_few_pairs_of_child_and_parent_are_fused_and_many_are_not() -> None:
    for children, parents, fused in ((4, MOST_PAIRS // 4, True), (1, MOST_PAIRS + 1, False), (192, 10, False)):
        routing, votes = make(children, parents, size=2)
        assert ("FusedAttention" in routing(votes).pose.grad_fn.name()) is fused


def test_votes_in_another_layout_give_the_same() -> None:
    routing, votes = make()
    other = votes.detach().permute(4, 3, 2, 1, 0).contiguous().permute(4, 3, 2, 1, 0)
    assert torch.equal(routing(other).pose, routing(votes).pose)


def test_a_gradient_can_be_differentiated_again() -> None:
    routing, votes = make()

    def twice() -> Tensor:
        (slope,) = torch.autograd.grad(routing(votes).pose.square().sum(), votes, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), votes)[0]

    fused = twice()
    with use_kernels("plain"):
        assert worst([fused], [twice()]) < 1e-4


def test_an_empty_batch() -> None:
    routing, votes = make()
    routed, slopes = gradients(routing, votes.detach()[:0].requires_grad_())
    assert routed.pose.shape == (0, 6, 3, 16)
    assert not any(slope.any() for slope in slopes)
