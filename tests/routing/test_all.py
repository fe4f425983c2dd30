"""What holds for every routing in the registry."""

from __future__ import annotations

import pytest
import torch

from torchcaps.functional import squash
from torchcaps.routing import RoutingRecord, routings
from torchcaps.routing.base import LayerShape
from torchcaps.testing import check_routing

each_routing = pytest.mark.parametrize("record", list(routings), ids=lambda record: record.name)


@each_routing
def test_keeps_every_promise(record: RoutingRecord) -> None:
    check_routing(record.build, any_child_order=record.any_child_order, any_parent_order=record.any_parent_order)


@each_routing
def test_the_record_says_what_the_routing_is(record: RoutingRecord) -> None:
    routing = record.build(LayerShape(1, 6, 3, 4, activations=True))
    routed = routing(torch.randn(2, 1, 6, 3, 4), torch.rand(2, 1, 6), nonlinearity=squash)
    assert (routed.activation is not None) == record.gives_activation
    assert routing.needs_activation == record.needs_activation
    assert hasattr(routing, "iterations") == record.iterative
    assert ("labels" in record.needs) == routing.alternating
    assert record.description
    assert record.paper
