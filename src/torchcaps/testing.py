"""Tests that every routing must pass, for your own routings too.

>>> from torchcaps.routing.dynamic import DynamicRouting
>>> check_routing(DynamicRouting, any_child_order=True, any_parent_order=True)
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from torchcaps.functional import safe_norm, squash
from torchcaps.layers import CapsuleLayer, Capsules, CapsuleStack, DenseTransform
from torchcaps.losses import margin_loss, one_hot
from torchcaps.routing.base import LayerShape, Routed, Routing

Build = Callable[[LayerShape], Routing]

SHAPE = LayerShape(positions=1, children=6, parents=3, size=4, activations=True, child_size=4)
# Two positions that share two of their children, as in a convolutional layer.
WINDOWS = LayerShape(positions=2, children=4, parents=3, size=4, activations=True, child_size=4)
WINDOW_INDEX = torch.tensor([[0, 1, 2, 3], [2, 3, 4, 5]])


def check_routing(build: Build, *, any_child_order: bool = False, any_parent_order: bool = False) -> None:
    """Check a routing; raise an AssertionError with a one-sentence reason if a check fails.

    Checks shapes, finite values and gradients for tiny, huge, zero and equal votes, a gradient for every parameter,
    independence of the images in a batch, determinism, couplings, saving and loading, gradients in double precision,
    and learning of a toy task within seconds.

    Args:
        build: the routing's class, or a function of a LayerShape that returns a routing.
        any_child_order: also check that permuting the children changes nothing.
        any_parent_order: also check that permuting the parents permutes the result.
    """
    random_state = torch.get_rng_state()
    torch.manual_seed(0)
    try:
        for shape, index in ((SHAPE, None), (WINDOWS, WINDOW_INDEX)):
            _check_outcome(build, shape, index)
            _check_extremes(build, shape, index)
            _check_gradients(build, shape, index)
            _check_memory(build, shape, index)
        _check_order(build, any_child_order, any_parent_order)
        _check_learning(build)
    finally:
        torch.set_rng_state(random_state)


def _route(routing: Routing, votes: Tensor, index: Tensor | None = None, activation: Tensor | None = None) -> Routed:
    if routing.needs_activation and activation is None:
        activation = votes.new_full(votes.shape[:3], 0.5)
    child_pose = votes.mean(3) if routing.needs_child_pose else None  # a pose that follows from the votes
    routed = routing(votes, activation, child_index=index, nonlinearity=squash, child_pose=child_pose)
    found = type(routed).__name__
    _ensure(
        isinstance(routed, Routed),
        f"forward returns a {found}, expected torchcaps.routing.Routed(pose, activation, couplings)",
    )
    return routed


def _votes(shape: LayerShape, images: int = 3) -> Tensor:
    return torch.randn(images, shape.positions, shape.children, shape.parents, shape.size)


def _check_outcome(build: Build, shape: LayerShape, index: Tensor | None) -> None:
    routing, votes = build(shape), _votes(shape)
    routed = _route(routing, votes, index)
    expected = (len(votes), shape.positions, shape.parents, shape.size)
    _ensure(tuple(routed.pose.shape) == expected, f"poses have shape {tuple(routed.pose.shape)}, expected {expected}")
    if routed.activation is not None:
        _ensure(routed.activation.shape == expected[:3], f"activations have shape {tuple(routed.activation.shape)}")
        inside = bool(((routed.activation >= 0) & (routed.activation <= 1)).all())
        _ensure(inside, "an activation is below 0 or above 1")
    _ensure(_same(routed.pose, _route(routing, votes, index).pose), "a second call with the same votes differs")
    _ensure(len(routed.couplings) > 0, "no couplings are returned")
    for couplings in routed.couplings:
        _ensure(couplings.shape == votes.shape[:4], f"couplings have shape {tuple(couplings.shape)}, not (B, P, I, J)")
    alone = torch.cat([_route(routing, image.unsqueeze(0), index).pose for image in votes])
    _ensure(_same(routed.pose, alone), "images of a batch influence each other")


def _check_extremes(build: Build, shape: LayerShape, index: Tensor | None) -> None:
    for name, votes in (
        ("zero", torch.zeros_like(_votes(shape))),
        ("equal", torch.ones_like(_votes(shape))),
        ("tiny", 1e-30 * _votes(shape)),
        ("huge", 1e12 * _votes(shape)),
    ):
        for level in (0.0, 0.5, 1.0):
            routing, leaf = build(shape), votes.clone().requires_grad_()
            routed = _route(routing, leaf, index, votes.new_full(votes.shape[:3], level))
            _ensure(bool(routed.pose.isfinite().all()), f"{name} votes give a pose that is not finite")
            answer = squash(routed.pose).sum()
            if routed.activation is not None:
                _ensure(bool(routed.activation.isfinite().all()), f"{name} votes give an activation that is not finite")
                answer = answer + routed.activation.sum()
            answer.backward()
            gradients = [leaf.grad, *(parameter.grad for parameter in routing.parameters())]
            finite = all(bool(each.isfinite().all()) for each in gradients if each is not None)
            _ensure(finite, f"{name} votes give a gradient that is not finite")


def _check_gradients(build: Build, shape: LayerShape, index: Tensor | None) -> None:
    routing = build(shape).double()
    votes = _votes(shape, images=2).double().requires_grad_()
    activation = torch.rand(votes.shape[:3], dtype=torch.float64).requires_grad_()
    parameters = dict(routing.named_parameters())

    def outcome(votes: Tensor, activation: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
        routed = _route(routing, votes, index, activation if routing.needs_activation else None)
        return (routed.pose,) if routed.activation is None else (routed.pose, routed.activation)

    sum(each.square().sum() for each in outcome(votes, activation)).backward()  # type: ignore[union-attr]
    for name, parameter in parameters.items():
        reached = parameter.grad is not None and bool(parameter.grad.abs().sum() > 0)
        _ensure(reached, f"no gradient reaches the parameter '{name}'")
    inputs = (votes, activation, *parameters.values())
    right = torch.autograd.gradcheck(outcome, inputs, raise_exception=False, fast_mode=True)
    _ensure(right, "the gradient differs from finite differences in double precision")


def _check_memory(build: Build, shape: LayerShape, index: Tensor | None) -> None:
    votes, first, second = _votes(shape), build(shape), build(shape)
    for value in first.state_dict().values():
        if value.is_floating_point():
            value.add_(0.1 * torch.rand_like(value))  # as after some training
    second.load_state_dict(first.state_dict())
    same = _same(_route(first, votes, index).pose, _route(second, votes, index).pose)
    _ensure(same, "the poses change after saving and loading")


def _check_order(build: Build, any_child_order: bool, any_parent_order: bool) -> None:
    routing, votes = build(SHAPE), _votes(SHAPE)
    activation = torch.rand(votes.shape[:3]) if routing.needs_activation else None
    pose = _route(routing, votes, None, activation).pose
    if any_child_order:
        order = torch.arange(SHAPE.children).roll(1)
        permuted = None if activation is None else activation[:, :, order]
        same = _same(pose, _route(routing, votes[:, :, order], None, permuted).pose)
        _ensure(same, "permuting the children changes the pose")
    if any_parent_order:
        order = torch.arange(SHAPE.parents).roll(1)
        same = _same(pose[:, :, order], _route(routing, votes[:, :, :, order], None, activation).pose)
        _ensure(same, "permuting the parents does not just permute the poses")


def _check_learning(build: Build, steps: int = 150) -> None:
    """Classify three noisy patterns of child capsules."""
    patterns = squash(torch.randn(3, SHAPE.children, 4))

    def draw(images: int) -> tuple[Capsules, Tensor]:
        labels = torch.randint(3, (images,))
        pose = patterns[labels] + 0.1 * torch.randn(images, SHAPE.children, 4)
        return Capsules(pose[:, None, None], pose.new_full((images, 1, 1, SHAPE.children), 0.9)), labels

    def score(capsules: Capsules) -> Tensor:
        if capsules.activation is None:
            return safe_norm(capsules.pose).flatten(1)
        return capsules.activation.flatten(1)

    transform = DenseTransform(SHAPE.children, SHAPE.parents, 4, SHAPE.size)
    torch.nn.init.normal_(transform.weight, std=0.5)
    stack = CapsuleStack(CapsuleLayer(transform, build(SHAPE), squash))
    optimizer = torch.optim.Adam(stack.parameters(), lr=0.03)
    for _ in range(steps):
        capsules, labels = draw(32)
        parents, votes = stack(capsules)
        targets = one_hot(labels, 3)
        loss = margin_loss(score(parents), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if votes is not None:
            stack.after_step(votes, targets)
    with torch.no_grad():
        capsules, labels = draw(300)
        accuracy = (score(stack(capsules)[0]).argmax(1) == labels).float().mean().item()
    _ensure(accuracy >= 0.9, f"a toy task with three classes is not learned: accuracy {accuracy:.0%}, {steps} steps")


def _same(first: Tensor, second: Tensor) -> bool:
    return torch.allclose(first, second, rtol=1e-4, atol=1e-5)


def _ensure(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)
