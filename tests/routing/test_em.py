from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.reference import em as reference
from torchcaps.errors import TorchcapsError
from torchcaps.layers import ConvTransform
from torchcaps.routing import LayerShape, Routed, create_routing
from torchcaps.routing.em import EMRouting

TRIAL = {"final_lambda": 0.7, "variance_floor": 0.05}  # values at which every term of the procedure matters
CONV = ConvTransform((5, 5), 2, 3, child_pose=(2, 2), parent_pose=(2, 2), kernel=3, stride=2)  # corners and borders


def em(votes: Tensor, **options: Any) -> EMRouting:
    """A routing for a layer that these votes come from, with betas that differ between types."""
    distinct = None if votes.shape[1] == 1 else CONV.shape.distinct
    shape = LayerShape(*votes.shape[1:], activations=True, distinct=distinct)
    routing = EMRouting(shape, **{**TRIAL, **options}).to(votes.dtype)
    if routing.activation == "mdl":
        with torch.no_grad():
            routing.beta_u.copy_(torch.linspace(0.2, 0.6, votes.shape[3]))
            routing.beta_a.copy_(torch.linspace(-1.0, 1.0, votes.shape[3]))
    return routing


def route(routing: EMRouting, votes: Tensor, activation: Tensor, child_index: Tensor | None, **options: Any) -> Routed:
    return routing(votes, activation, child_index=child_index, nonlinearity=nn.Identity(), **options)


def by_the_book(routing: EMRouting, votes: Tensor, activation: Tensor, seen: Tensor, **options: Any) -> list[Tensor]:
    """Poses, activations and last assignments from the slow reference, image by image."""
    mixing = routing.activation == "mixing"
    betas = [[0.0] * votes.shape[3]] * 2 if mixing else [routing.beta_u.tolist(), routing.beta_a.tolist()]
    images = [
        reference.em_routing(
            votes[b].tolist(),
            activation[b].tolist(),
            seen.tolist(),
            iterations=routing.iterations,
            beta_u=betas[0],
            beta_a=betas[1],
            final_lambda=routing.final_lambda,
            expected_mass=len(seen.unique()) / 2 / (votes.shape[1] * votes.shape[3]),
            variance_floor=routing.variance_floor,
            mean_damping=routing.mean_damping,
            mixing=mixing,
            **options,
        )
        for b in range(len(votes))
    ]
    return [torch.tensor([image[part] for image in images]) for part in range(3)]


@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "options", [{}, {"activation": "mixing"}, {"mean_damping": 0.1}], ids=["mdl", "mixing", "damped"]
)
@pytest.mark.parametrize("layer", ["dense", "convolutional"])
def test_agrees_with_the_reference(layer: str, options: dict[str, Any], iterations: int) -> None:
    shape = (2, 1, 12, 4, 5) if layer == "dense" else (2, 4, 18, 3, 4)
    votes, activation = torch.randn(shape), torch.rand(shape[:3])
    child_index = None if layer == "dense" else CONV.child_index
    seen = torch.arange(12).view(1, 12) if child_index is None else child_index
    routing = em(votes, iterations=iterations, **options)
    got = route(routing, votes, activation, child_index)
    pose, active, assignment = by_the_book(routing, votes, activation, seen)
    torch.testing.assert_close(got.pose, pose, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got.activation, active, rtol=1e-5, atol=1e-6)
    assert len(got.couplings) == iterations  # no E-step after the last M-step
    torch.testing.assert_close(got.couplings[-1], assignment, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("wrong", ["one position", "children"])
def test_competing_among_the_wrong_capsules_would_be_caught(wrong: str) -> None:
    votes, activation = torch.randn(1, 4, 18, 3, 4), torch.rand(1, 4, 18)
    routing = em(votes)
    got = route(routing, votes, activation, CONV.child_index).pose
    right = by_the_book(routing, votes, activation, CONV.child_index)[0]
    defective = by_the_book(routing, votes, activation, CONV.child_index, compete=wrong)[0]
    torch.testing.assert_close(got, right, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(got, defective, atol=1e-2)


@pytest.mark.parametrize("activation", ["mdl", "mixing"])
def test_gradient_in_double_precision(activation: str) -> None:
    votes = torch.randn(2, 4, 18, 3, 4, dtype=torch.float64, requires_grad=True)
    present = torch.rand(2, 4, 18, dtype=torch.float64, requires_grad=True)
    routing = em(votes, activation=activation, mean_damping=0.1)

    def outcome(votes: Tensor, present: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        routed = route(routing, votes, present, CONV.child_index)
        assert routed.activation is not None
        return routed.pose, routed.activation

    assert torch.autograd.gradcheck(outcome, (votes, present, *routing.parameters()), fast_mode=True)


def test_a_gradient_through_one_m_step_takes_assignments_as_constants() -> None:
    votes = torch.randn(2, 4, 18, 3, 4, dtype=torch.float64, requires_grad=True)
    present = torch.rand(2, 4, 18, dtype=torch.float64, requires_grad=True)
    routing = em(votes, iterations=3, gradient_steps=1)
    slopes = torch.randn(2, 4, 3, 4, dtype=torch.float64)
    routed = route(routing, votes, present, CONV.child_index)
    found = torch.autograd.grad((routed.pose * slopes).sum(), (votes, present))
    weights = routed.couplings[-1].detach() * present.unsqueeze(3)  # r (B, P, I, J)
    mean = torch.einsum("bpij,bpijd->bpjd", weights, votes) / weights.sum(2).unsqueeze(3)
    expected = torch.autograd.grad((mean * slopes).sum(), (votes, present))
    for each, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(each, wanted, rtol=1e-4, atol=1e-6)
    whole = route(em(votes, iterations=3), votes, present, CONV.child_index)
    torch.testing.assert_close(whole.pose, routed.pose)  # only the gradient differs
    other = torch.autograd.grad((whole.pose * slopes).sum(), (votes, present))
    assert not torch.allclose(found[0], other[0], rtol=1e-2)


def test_second_gradient_in_double_precision() -> None:
    votes = torch.randn(1, 4, 18, 3, 4, dtype=torch.float64, requires_grad=True)
    present = torch.rand(1, 4, 18, dtype=torch.float64, requires_grad=True)
    routing = em(votes, iterations=2)
    assert torch.autograd.gradgradcheck(
        lambda v, a: route(routing, v, a, CONV.child_index).activation, (votes, present), fast_mode=True
    )


@settings(max_examples=80, deadline=None)
@given(
    scale=st.sampled_from([0.0, 1e-38, 1e-8, 1.0, 1e4, 1e15, 1e30, 3e38]),
    kind=st.sampled_from(["random", "equal", "one far away"]),
    present=st.sampled_from([0.0, 1e-30, 1.0, None]),
    iterations=st.integers(1, 5),
    floor=st.sampled_from([None, 5e-4]),
    activation=st.sampled_from(["mdl", "mixing"]),
)
def test_finite_for_any_finite_input(
    scale: float, kind: str, present: float | None, iterations: int, floor: float | None, activation: str
) -> None:
    generator = torch.Generator().manual_seed(0)
    votes = torch.rand(2, 4, 18, 3, 4, generator=generator) * 2 - 1
    if kind == "equal":
        votes = torch.ones_like(votes)
    if kind == "one far away":
        votes[:, :, 0] = scale
    else:
        votes = votes * scale
    child = torch.rand(2, 4, 18, generator=generator) if present is None else torch.full((2, 4, 18), present)
    votes.requires_grad_()
    child.requires_grad_()
    options = {} if floor is None else {"variance_floor": floor}
    routing = EMRouting(
        LayerShape(4, 18, 3, 4, activations=True), iterations=iterations, activation=activation, **options
    )
    routed = route(routing, votes, child, CONV.child_index)
    assert routed.activation is not None
    (routed.pose.tanh().sum() + routed.activation.sum()).backward()
    for tensor in (routed.pose, routed.activation, *routed.couplings, votes.grad, child.grad):
        assert tensor is not None
        assert torch.isfinite(tensor).all()
    for parameter in routing.parameters():
        assert torch.isfinite(parameter.grad).all()


def test_a_tight_cluster_is_more_active_than_scattered_votes() -> None:
    votes = torch.randn(1, 1, 30, 2, 8)
    votes[..., 0, :] = 1.0 + 0.01 * votes[..., 0, :]
    routed = route(em(votes), votes, torch.ones(1, 1, 30), None)
    assert routed.activation is not None
    assert routed.activation[0, 0, 0] > routed.activation[0, 0, 1] + 0.2


def test_a_new_layer_of_any_size_starts_half_active() -> None:
    for layer in (CONV, ConvTransform((14, 14), 16, 8, kernel=3), ConvTransform((5, 5), 4, 2, kernel=5)):
        shape = replace(layer.shape, activations=True)
        votes = 0.01 * torch.randn(2, shape.positions, shape.children, shape.parents, shape.size)
        routed = route(EMRouting(shape), votes, torch.full(votes.shape[:3], 0.5), layer.child_index)
        assert routed.activation is not None
        assert routed.activation.mean().item() == pytest.approx(0.5, abs=0.05)


def test_a_parent_without_votes_has_the_same_activation_at_any_number_of_iterations() -> None:
    votes, absent = torch.randn(1, 1, 10, 3, 16), torch.zeros(1, 1, 10)
    shape = LayerShape(*votes.shape[1:], activations=True)
    found = [route(EMRouting(shape, iterations=count), votes, absent, None).activation for count in (1, 2, 3, 5, 8)]
    for activation in found:
        torch.testing.assert_close(activation, found[2])
    # With 3 iterations, as published weights were trained: logistic(2 * (1 - 0.95^3) * beta_a), where beta_a is -8.
    assert found[2].mean().item() == pytest.approx(1 / (1 + math.exp(2 * (1 - 0.95**3) * 8)), rel=1e-5)


def test_absent_children_have_no_say() -> None:
    votes = torch.randn(1, 1, 10, 3, 4)
    present = torch.ones(1, 1, 10)
    present[..., 5:] = 0.0
    routing = em(votes[:, :, :5])
    few = route(routing, votes[:, :, :5], present[..., :5], None)
    wide = em(votes)
    wide.expected_mass = routing.expected_mass
    all_of_them = route(wide, votes, present, None)
    torch.testing.assert_close(all_of_them.pose, few.pose)
    torch.testing.assert_close(all_of_them.activation, few.activation)


def test_wrong_settings_are_refused_when_built() -> None:
    shape = LayerShape(1, 12, 4, 5, activations=True)
    with pytest.raises(TorchcapsError, match="the capsules below have only a pose"):
        EMRouting(LayerShape(1, 12, 4, 5))
    with pytest.raises(TorchcapsError, match="EM activation 'mld' is unknown: did you mean 'mdl'"):
        EMRouting(shape, activation="mld")
    for wrong in ({"iterations": 0}, {"final_lambda": 0.0}, {"variance_floor": -1.0}, {"mean_damping": 1.0}):
        with pytest.raises(TorchcapsError, match="EM routing needs at least 1 iteration, positive"):
            EMRouting(shape, **wrong)
    with pytest.raises(TorchcapsError, match="a gradient through at least 1 M-step, got 0"):
        EMRouting(shape, gradient_steps=0)
    with pytest.raises(TorchcapsError, match="routing 'em' does not take these settings"):
        create_routing("em", shape, speed=3)


def test_compiles_in_one_graph() -> None:
    votes, present = torch.randn(2, 4, 18, 3, 4), torch.rand(2, 4, 18)
    routing = em(votes)
    compiled = torch.compile(
        lambda v, a: route(routing, v, a, CONV.child_index).activation, fullgraph=True, backend="eager"
    )
    torch.testing.assert_close(compiled(votes, present), route(routing, votes, present, CONV.child_index).activation)
