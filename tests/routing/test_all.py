"""Properties of every routing in the registry."""

from __future__ import annotations

import pytest
import torch

from torchcaps.errors import TorchcapsError
from torchcaps.functional import squash
from torchcaps.routing import Routing, RoutingRecord, create_routing, routings
from torchcaps.routing.base import LayerShape
from torchcaps.testing import check_routing

SHAPE = LayerShape(1, 6, 3, 4, activations=True, child_size=5)


def own_poses(routing: Routing, *shape: int) -> torch.Tensor | None:
    return torch.randn(*shape, 5) if routing.needs_child_pose else None


each_routing = pytest.mark.parametrize("record", list(routings), ids=lambda record: record.name)


@each_routing
def test_keeps_every_promise(record: RoutingRecord) -> None:
    check_routing(record.build, any_child_order=record.any_child_order, any_parent_order=record.any_parent_order)


@each_routing
def test_the_record_says_what_the_routing_is(record: RoutingRecord) -> None:
    routing = record.build(SHAPE)
    poses = own_poses(routing, 2, 1, 6)
    routed = routing(torch.randn(2, 1, 6, 3, 4), torch.rand(2, 1, 6), nonlinearity=squash, child_pose=poses)
    assert (routed.activation is not None) == routing.gives_activation
    assert hasattr(routing, "iterations") == record.iterative
    assert ("labels" in record.needs) == routing.alternating
    assert record.description
    assert record.paper


@each_routing
def test_compiles_in_one_graph(record: RoutingRecord) -> None:
    """On devices without fused forms the plain ones are what torch.compile gets: no graph may break."""
    torch.manual_seed(0)
    torch.compiler.reset()  # graphs of other routings count toward the limit of recompilations
    routing = record.build(SHAPE)
    votes, present = torch.randn(2, 1, 6, 3, 4, requires_grad=True), torch.rand(2, 1, 6)
    poses = own_poses(routing, 2, 1, 6)

    def pose(votes: torch.Tensor) -> torch.Tensor:
        return routing(votes, present, nonlinearity=squash, child_pose=poses).pose

    compiled = torch.compile(pose, fullgraph=True, backend="aot_eager")
    results = [(found, *torch.autograd.grad(found.square().sum(), votes)) for found in (compiled(votes), pose(votes))]
    torch.testing.assert_close(results[0], results[1])


@each_routing
def test_plain_votes_give_the_same_without_positions(record: RoutingRecord) -> None:
    routing = record.build(SHAPE)
    votes, poses = torch.randn(2, 6, 3, 4), own_poses(routing, 2, 6)
    activation = torch.rand(2, 6) if routing.needs_activation else None
    plain = routing(votes, activation, nonlinearity=torch.tanh, child_pose=poses)
    full = routing(
        votes.unsqueeze(1),
        None if activation is None else activation.unsqueeze(1),
        nonlinearity=torch.tanh,
        child_pose=None if poses is None else poses.unsqueeze(1),
    )
    assert torch.equal(plain.pose, full.pose.squeeze(1))
    assert (plain.activation is None) == (full.activation is None)
    assert all(couplings.shape == (2, 6, 3) for couplings in plain.couplings)
    with pytest.raises(TorchcapsError, match=r"built for votes \(P, I, J, D\) = \(1, 6, 3, 4\), got \(1, 5, 3, 4\)"):
        routing(votes[:, :5], None if activation is None else activation[:, :5])


def test_an_unknown_setting_is_answered_with_the_known_ones() -> None:
    shape = LayerShape(positions=1, children=4, parents=3, size=2)
    with pytest.raises(TorchcapsError, match="setting 'iteration' is unknown: did you mean 'iterations'"):
        create_routing("dynamic", shape, iteration=3)
    with pytest.raises(TorchcapsError, match="routing 'uniform' does not take these settings: it has none"):
        create_routing("uniform", shape, iterations=3)
