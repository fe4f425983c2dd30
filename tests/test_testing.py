"""check_routing detects every kind of broken routing that it documents."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from torchcaps.routing.base import LayerShape, Routed, Routing
from torchcaps.testing import check_routing


def broken(
    change: Callable[[Tensor, Tensor], Tensor], *, couplings: bool = True, parameter: bool = False
) -> type[Routing]:
    """An averaging routing whose poses are spoiled by ``change``, which also sees the votes."""

    class Broken(Routing):
        def __init__(self, shape: LayerShape) -> None:
            super().__init__(shape)
            if parameter:
                self.unused = nn.Parameter(torch.zeros(3))

        def forward(self, votes: Tensor, activation: Tensor | None, **_: object) -> Routed:
            equal = votes.new_full(votes.shape[:4], 1 / votes.shape[3])
            return Routed(change(votes.mean(2), votes), couplings=[equal] if couplings else [])

    return Broken


@pytest.mark.parametrize(
    ("routing", "message"),
    [
        (broken(lambda pose, _: pose[:, :, :1]), "poses have shape"),
        (broken(lambda pose, _: pose + torch.rand(1)), "a second call with the same votes differs"),
        (broken(lambda pose, _: pose, couplings=False), "no couplings are returned"),
        (broken(lambda pose, _: pose - pose.mean(0)), "images of a batch influence each other"),
        (broken(lambda pose, _: pose / pose.norm(dim=3, keepdim=True)), "zero votes give a pose that is not finite"),
        (broken(lambda pose, _: pose * pose.norm(dim=3, keepdim=True).sqrt()), "gradient that is not finite"),
        (broken(lambda pose, _: pose, parameter=True), "no gradient reaches the parameter 'unused'"),
        (broken(lambda pose, _: pose.detach() * 2 - pose), "differs from finite differences"),
        (broken(lambda pose, votes: pose + votes[:, :, 0]), "permuting the children"),
        (broken(lambda pose, _: pose + pose[:, :, :1]), "permuting the parents"),
        (broken(lambda pose, _: 0 * pose), "toy task with three classes is not learned"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_broken_routing_is_caught(routing: type[Routing], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_routing(routing, any_child_order=True, any_parent_order=True)


def test_a_sound_routing_passes_and_the_random_state_is_left_alone() -> None:
    before = torch.get_rng_state()
    check_routing(broken(lambda pose, _: pose), any_child_order=True, any_parent_order=True)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_routing_that_returns_a_tensor_is_answered_in_one_sentence() -> None:
    class Plain(Routing):
        def forward(self, votes: Tensor, activation: Tensor | None, **_: object) -> Tensor:  # type: ignore[override]
            return votes.mean(2)

    with pytest.raises(AssertionError, match=r"forward returns a Tensor, expected torchcaps.routing.Routed"):
        check_routing(Plain)
