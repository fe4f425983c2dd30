"""Layers that iterate together."""

from __future__ import annotations

import pytest
import torch

from torchcaps.errors import TorchcapsError
from torchcaps.layers import CapsuleLayer, Capsules, CapsuleStack, ConcurrentStack, build_stack
from torchcaps.layers.capsule_layer import record_layers
from torchcaps.models import create_model

ITERATIVE = ("dynamic", "em", "variational-bayes", "inverted-attention", "heinsen")


def layers(routing: str, iterations: int = 3) -> list[CapsuleLayer]:
    torch.manual_seed(0)
    options = {"iterations": iterations}
    return [
        CapsuleLayer.conv((4, 4), 2, 4, 3, 4, kernel=2, stride=2, routing=routing, routing_options=options),
        CapsuleLayer.dense(2 * 2 * 3, 4, 5, 4, routing=routing, routing_options=options),
    ]


def children() -> Capsules:
    torch.manual_seed(1)
    return Capsules(torch.randn(2, 4, 4, 2, 4), torch.rand(2, 4, 4, 2))


@pytest.mark.parametrize("routing", ITERATIVE)
def test_one_layer_routes_as_it_would_alone(routing: str) -> None:
    for stack in (ConcurrentStack, CapsuleStack):
        stack(layers(routing)[0])
    first, second = ConcurrentStack(layers(routing)[0]).eval(), CapsuleStack(layers(routing)[0]).eval()
    torch.testing.assert_close(first(children())[0], second(children())[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("routing", ITERATIVE)
def test_one_iteration_is_the_same_in_any_order_and_more_are_not(routing: str) -> None:
    for iterations in (1, 3):
        first = ConcurrentStack(*layers(routing, iterations)).eval()(children())[0].pose
        second = CapsuleStack(*layers(routing, iterations)).eval()(children())[0].pose
        assert torch.allclose(first, second, rtol=1e-4, atol=1e-5) == (iterations == 1)


def test_every_iteration_uses_the_children_of_the_one_before() -> None:
    """Written out for two layers and two iterations of inverted attention."""
    lower, upper = layers("inverted-attention", 2)
    primary = children()
    first, first_result, _ = lower.step(primary, None, 0)
    top, top_result, _ = upper.step(first, None, 0)
    second, _, _ = lower.step(primary, first_result, 1)
    expected, _, _ = upper.step(first, top_result, 1)
    wrong, _, _ = upper.step(second, top_result, 1)
    found = ConcurrentStack(lower, upper)(primary)[0].pose
    assert torch.equal(found, expected.pose)
    assert not torch.allclose(found, wrong.pose)
    assert not torch.allclose(found, top.pose)


def test_calls_are_recorded_with_the_couplings_of_every_iteration() -> None:
    stack = ConcurrentStack(*layers("dynamic"))
    with record_layers(votes=True) as calls:
        parents, _ = stack(children())
    assert [call.layer for call in calls] == list(stack)
    assert [len(call.couplings) for call in calls] == [3, 3]
    assert torch.equal(calls[-1].parents.pose, parents.pose)
    assert calls[0].votes is not None
    assert calls[0].votes.shape == (2, 4, 8, 3, 4)


def test_what_cannot_iterate_together_is_refused() -> None:
    with pytest.raises(TorchcapsError, match="need a routing with iterations, and UniformRouting has none"):
        ConcurrentStack(CapsuleLayer.dense(4, 4, 5, 4, routing="uniform"))
    with pytest.raises(TorchcapsError, match="same number of iterations"):
        ConcurrentStack(layers("dynamic", 2)[0], layers("dynamic", 3)[1])
    with pytest.raises(TorchcapsError, match="did you mean 'concurrent'"):
        build_stack("concurent")
    with pytest.raises(TorchcapsError, match="only a pose"):
        create_model("inverted-capsnet", routing="em", image_size=32)


def test_matrix_capsules_can_iterate_together() -> None:
    model = create_model("matrix-capsnet", size="laptop", filters=4, types=(2, 2, 2), routing_order="concurrent")
    output = model(torch.rand(2, 1, 28, 28))
    output.scores.sum().backward()
    assert output.scores.isfinite().all()
    assert isinstance(model.capsules, ConcurrentStack)
