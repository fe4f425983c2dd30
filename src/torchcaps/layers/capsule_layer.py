"""A capsule layer: transform, routing, nonlinearity."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast as cast_type

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from torchcaps.layers.transforms import Capsules, Transform
from torchcaps.routing.base import Nonlinearity, Routed, Routing

# MERGED Capsule layers one after the other, up to the class capsules.
MOST_VOTES = 2**24  # numbers in the votes that are made at once where they are not kept; a step needs many times that


@dataclass(frozen=True)
class LayerCall:
    """One forward pass of a capsule layer, see :func:`record_layers`.

    Shapes: ``couplings`` one (B, P, I, J) per iteration; ``votes`` (B, P, I, J, D) if they were asked for.
    """

    layer: CapsuleLayer
    children: Capsules
    parents: Capsules
    couplings: list[Tensor]
    votes: Tensor | None


@dataclass(frozen=True)
class _Recording:
    votes: bool
    calls: list[LayerCall] = field(default_factory=list)


_recording: ContextVar[_Recording | None] = ContextVar("torchcaps_recording", default=None)


@contextlib.contextmanager
def record_layers(*, votes: bool = False) -> Iterator[list[LayerCall]]:
    """Record every call of a capsule layer that this thread makes in the block, in order.

    Calls from other threads are not recorded, even if they share the model.

    Args:
        votes: also record the votes.
    """
    recording = _Recording(votes)
    before = _recording.set(recording)
    try:
        yield recording.calls
    finally:
        _recording.reset(before)


class CapsuleLayer(nn.Module):
    """Children vote for parents, routing settles who listens to whom, a nonlinearity finishes the poses."""

    def __init__(self, transform: Transform, routing: Routing, nonlinearity: Nonlinearity) -> None:
        super().__init__()
        self.transform, self.routing, self.nonlinearity = transform, routing, nonlinearity

    def forward(
        self, capsules: Capsules, couplings: list[Tensor] | None = None, votes: list[Tensor] | None = None
    ) -> Capsules:
        """Parents of these capsules.

        A list given as ``couplings`` receives those of every iteration, one given as ``votes`` the votes.
        """
        recording = None if torch.compiler.is_compiling() else _recording.get()
        if recording is not None:
            couplings = [] if couplings is None else couplings
            votes = [] if votes is None and recording.votes else votes
        grid = self.transform.grid
        watched = couplings is not None or votes is not None
        routed = None if watched else self._route_factors(capsules)
        if routed is None and self.routing.recompute and not watched:
            routed = self._route_parts(capsules)
        elif routed is None:
            routed = self._route_votes(capsules, couplings, votes)
        pose = self.nonlinearity(routed.pose).unflatten(1, grid)  # (B, H, W, J, D)
        activation = None if routed.activation is None else routed.activation.unflatten(1, grid)
        # Routing gives float32 for children in half precision. Under autocast that is what the next layer wants.
        if pose.dtype != capsules.pose.dtype and not torch.is_autocast_enabled(pose.device.type):
            pose = pose.to(capsules.pose.dtype)
            activation = None if activation is None else activation.to(pose.dtype)
        parents = Capsules(pose, activation)
        if recording is not None:
            recording.calls.append(LayerCall(self, capsules, parents, couplings or [], votes[0] if votes else None))
        return parents

    def _route_factors(self, capsules: Capsules) -> Routed | None:
        """Without votes ever being stored, where transform and routing allow it."""
        factors = self.transform.factors(capsules)
        return None if factors is None else self.routing.route_factors(factors, self.nonlinearity)

    def _route_parts(self, capsules: Capsules) -> Routed:
        """Some images after the others, of which the children alone are kept, not votes times iterations."""

        def route(part: Capsules) -> tuple[Tensor, Tensor | None]:
            routed = self._route_votes(part, None, None)
            return routed.pose, routed.activation  # without the couplings

        shape = self.routing.shape
        images = max(1, MOST_VOTES // (shape.positions * shape.children * shape.parents * shape.size))
        some = [slice(start, start + images) for start in range(0, max(1, len(capsules.pose)), images)]
        active = capsules.activation
        parts = [Capsules(capsules.pose[each], None if active is None else active[each]) for each in some]
        routed = [checkpoint(route, part, use_reentrant=False) for part in parts]
        present = [activation for _, activation in routed if activation is not None]
        return Routed(torch.cat([pose for pose, _ in routed]), torch.cat(present) if present else None)

    def _route_votes(self, capsules: Capsules, couplings: list[Tensor] | None, votes: list[Tensor] | None) -> Routed:
        seen = None if capsules.activation is None else self.transform.gather(capsules.activation)  # (B, P, I)
        cast = self.transform(capsules)
        routed = self.routing(
            cast,
            seen,
            child_index=self.transform.child_index,
            nonlinearity=self.nonlinearity,
        )
        if couplings is not None:
            couplings.extend(routed.couplings)
        if votes is not None:
            votes.append(cast)
        return routed


class CapsuleStack(nn.Module):
    """A chain of capsule layers, and what its routings learn outside backpropagation."""

    def __init__(self, *layers: CapsuleLayer) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.alternating = any(layer.routing.alternating for layer in layers)

    def forward(self, capsules: Capsules) -> tuple[Capsules, Tensor | None]:
        """The class capsules; also the first layer's votes, in training, if :meth:`after_step` has a use for them."""
        votes: list[Tensor] = []
        wanted = votes if self.training and self.alternating else None
        for index, layer in enumerate(self):
            capsules = layer(capsules, votes=wanted if index == 0 else None)
        return capsules, votes[0].detach() if votes else None

    def after_step(self, votes: Tensor, targets: Tensor) -> None:
        """Let the routings climb: longer class capsules where targets are 1, shorter ones where they are 0.

        The first layer's votes are those of the forward pass. What lies above them is small and is run again from
        there, because the slope in a lower layer follows from the layers above by the chain rule.

        Shapes: votes (B, P, I, J, D), targets (B, classes).
        """
        layers = list(self)
        cast = [votes.detach().to(torch.promote_types(votes.dtype, torch.float32))]
        with torch.enable_grad():
            poses = [_poses(layers[0], cast[0]).detach().requires_grad_()]
            for below, layer in pairwise(layers):
                capsules = below.nonlinearity(poses[-1]).unflatten(1, below.transform.grid)
                weights = next(layer.transform.parameters(), capsules).dtype  # maybe in half precision
                cast.append(layer.transform(Capsules(capsules.to(weights))).to(capsules.dtype))
                poses.append(_poses(layer, cast[-1]))
            signs = (2 * targets - 1).unsqueeze(1)  # (B, 1, classes)
            objective = (signs * poses[-1].square().sum(3)).sum()
        slopes = torch.autograd.grad(objective, poses)
        for layer, layer_votes, slope in zip(layers, cast, slopes, strict=True):
            layer.routing.after_step(layer_votes.detach(), slope)

    def __iter__(self) -> Iterator[CapsuleLayer]:
        return iter(cast_type("list[CapsuleLayer]", self.layers))


def _poses(layer: CapsuleLayer, votes: Tensor) -> Tensor:
    return layer.routing(votes, child_index=layer.transform.child_index, nonlinearity=layer.nonlinearity).pose
