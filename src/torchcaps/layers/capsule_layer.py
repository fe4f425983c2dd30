"""Capsule layers: a transform, a routing and a nonlinearity."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from torchcaps.kernels.dispatch import kernel_choice
from torchcaps.layers.conv_transform import ConvTransform
from torchcaps.layers.nonlinearity import get_nonlinearity
from torchcaps.layers.transform import Capsules, PoseShape, Transform, transforms
from torchcaps.routing import IterativeRouting, Routed, Routing, create_routing
from torchcaps.routing.base import Nonlinearity

MAX_VOTES = 2**24  # elements of the votes computed at once when they are recomputed in the backward pass


class CapsuleLayer(nn.Module):
    """A capsule layer: child capsules vote for the parents' poses, a routing combines the votes.

    :meth:`dense` and :meth:`conv` build the usual layers from sizes, in the way of ``torch.nn``.

    Args:
        transform: computes the votes.
        routing: computes the parents from the votes; built for ``transform.shape``.
        nonlinearity: applied to the parents' poses.

    Shapes: :class:`Capsules` (B, H, W, N, D) to :class:`Capsules` (B, H', W', J, D').
    """

    def __init__(self, transform: Transform, routing: Routing, nonlinearity: Nonlinearity) -> None:
        super().__init__()
        self.transform, self.routing, self.nonlinearity = transform, routing, nonlinearity

    @classmethod
    def dense(
        cls,
        children: int,
        child_size: int,
        parents: int,
        parent_size: int,
        *,
        routing: str | Callable[..., Routing] = "dynamic",
        routing_options: dict[str, Any] | None = None,
        transform: str = "dense",
        nonlinearity: str | Nonlinearity | None = None,
    ) -> Self:
        """Build a fully connected layer: every child votes for every parent.

        Args:
            children: number of child capsules, over all grid cells.
            child_size: size of a child's pose.
            parents: number of parent capsules.
            parent_size: size of a parent's pose.
            routing: a registered name, or a function of a :class:`LayerShape` such as ``DynamicRouting``.
            routing_options: settings of the routing, such as ``{"iterations": 2}``.
            transform: a registered name, ``dense`` or ``shared``.
            nonlinearity: a registered name or a function; None for ``squash``, or for ``none`` after a routing that
                gives activations.

        >>> layer = CapsuleLayer.dense(1152, 8, 10, 16, routing="dynamic")
        >>> layer(Capsules(torch.randn(2, 6, 6, 32, 8))).pose.shape
        torch.Size([2, 1, 1, 10, 16])
        """
        voting = transforms.get(transform).build(children, parents, child_size, parent_size)
        return cls._build(voting, routing, routing_options, nonlinearity)

    @classmethod
    def conv(
        cls,
        child_grid: tuple[int, int],
        child_types: int,
        child_size: int | PoseShape,
        parents: int,
        parent_size: int | PoseShape,
        *,
        kernel: int,
        stride: int = 1,
        routing: str | Callable[..., Routing] = "dynamic",
        routing_options: dict[str, Any] | None = None,
        nonlinearity: str | Nonlinearity | None = None,
    ) -> Self:
        """Build a convolutional layer: a parent sees the children in its K x K receptive field.

        ``layer.transform.grid`` is the grid of the parents.

        Args:
            child_grid: height and width of the children's grid.
            child_types: capsule types in each cell of it.
            child_size, parent_size: size of a pose vector, transformed by a full matrix; or (rows, columns) of a pose
                matrix, transformed by a columns x columns matrix.
            parents: capsule types in each cell of the parents' grid.
            kernel: K.
            stride: of the receptive fields; there is no padding.
            routing, routing_options, nonlinearity: as in :meth:`dense`.

        >>> layer = CapsuleLayer.conv((14, 14), 8, 8, 16, 12, kernel=3, stride=2)
        >>> layer(Capsules(torch.randn(2, 14, 14, 8, 8))).pose.shape
        torch.Size([2, 6, 6, 16, 12])
        """
        child_pose, parent_pose = ((1, size) if isinstance(size, int) else size for size in (child_size, parent_size))
        voting = ConvTransform(
            child_grid,
            child_types,
            parents,
            child_pose=child_pose,
            parent_pose=parent_pose,
            kernel=kernel,
            stride=stride,
        )
        return cls._build(voting, routing, routing_options, nonlinearity)

    @classmethod
    def _build(
        cls,
        transform: Transform,
        routing: str | Callable[..., Routing],
        options: dict[str, Any] | None,
        nonlinearity: str | Nonlinearity | None,
    ) -> Self:
        shape = replace(transform.shape, activations=True)  # a call without activations is refused if they are needed
        if isinstance(routing, str):
            routed = create_routing(routing, shape, **(options or {}))
        else:
            routed = routing(shape, **(options or {}))
        if nonlinearity is None:
            nonlinearity = "none" if routed.gives_activation else "squash"
        return cls(transform, routed, get_nonlinearity(nonlinearity))

    def forward(
        self, capsules: Capsules, couplings: list[Tensor] | None = None, votes: list[Tensor] | None = None
    ) -> Capsules:
        """Compute the parents of these capsules.

        Couplings of every iteration are appended to ``couplings``, and the votes to ``votes``, if a list is given.
        """
        recording = current_recording()
        if recording is not None:
            couplings = [] if couplings is None else couplings
            votes = [] if votes is None and recording.votes else votes
        observed = couplings is not None or votes is not None
        routed = None if observed else self._route_factors(capsules)
        if routed is None and self.routing.recompute and not observed:
            routed = self._route_chunks(capsules)
        elif routed is None:
            routed = self._route_votes(capsules, couplings, votes)
        parents = self._parents(capsules, routed)
        if recording is not None:
            recording.calls.append(LayerCall(self, capsules, parents, couplings or [], votes[0] if votes else None))
        return parents

    def step(self, capsules: Capsules, previous: Routed | None, iteration: int) -> tuple[Capsules, Routed, Tensor]:
        """Compute one iteration of the routing: the parents, the result for the next iteration, and the votes."""
        assert isinstance(self.routing, IterativeRouting)
        gathered = None if capsules.activation is None else self.transform.gather(capsules.activation)
        votes, activation, _ = self.routing.check_input(self.transform(capsules), gathered)
        with torch.autocast(votes.device.type, enabled=False):
            routed = self.routing.step(
                votes,
                activation,
                previous,
                iteration,
                child_index=self.transform.child_index,
                nonlinearity=self.nonlinearity,
            )
        return self._parents(capsules, routed), routed, votes

    def _parents(self, children: Capsules, routed: Routed) -> Capsules:
        grid = self.transform.grid
        pose = self.nonlinearity(routed.pose).unflatten(1, grid)  # (B, H, W, J, D)
        activation = None if routed.activation is None else routed.activation.unflatten(1, grid)
        # Routing returns float32 for children in half precision. Under autocast the next layer expects that.
        if pose.dtype != children.pose.dtype and not torch.is_autocast_enabled(pose.device.type):
            pose = pose.to(children.pose.dtype)
            activation = None if activation is None else activation.to(pose.dtype)
        return Capsules(pose, activation)

    def _route_factors(self, capsules: Capsules) -> Routed | None:
        """Route without storing votes, if both the transform and the routing support it."""
        factors = None if kernel_choice() == "plain" else self.transform.factors(capsules)
        if factors is None:
            return None
        with torch.autocast(capsules.pose.device.type, enabled=False):
            return self.routing.route_factors(factors.to_float(), self.nonlinearity)

    def _route_chunks(self, capsules: Capsules) -> Routed:
        """Route a few images at a time, storing only the children and recomputing the votes in the backward pass."""

        def route(chunk: Capsules) -> tuple[Tensor, Tensor | None]:
            routed = self._route_votes(chunk, None, None)
            return routed.pose, routed.activation  # without the couplings

        shape = self.routing.shape
        images = max(1, MAX_VOTES // (shape.positions * shape.children * shape.parents * shape.size))
        slices = [slice(start, start + images) for start in range(0, max(1, len(capsules.pose)), images)]
        active = capsules.activation
        chunks = [Capsules(capsules.pose[each], None if active is None else active[each]) for each in slices]
        routed = [checkpoint(route, chunk, use_reentrant=False) for chunk in chunks]
        present = [activation for _, activation in routed if activation is not None]
        return Routed(torch.cat([pose for pose, _ in routed]), torch.cat(present) if present else None)

    def _route_votes(
        self, capsules: Capsules, couplings: list[Tensor] | None, collected: list[Tensor] | None
    ) -> Routed:
        activation = None if capsules.activation is None else self.transform.gather(capsules.activation)  # (B, P, I)
        votes = self.transform(capsules)
        routed = self.routing(
            votes,
            activation,
            child_index=self.transform.child_index,
            nonlinearity=self.nonlinearity,
            child_pose=self.transform.gather(capsules.pose) if self.routing.needs_child_pose else None,
        )
        if couplings is not None:
            couplings.extend(routed.couplings)
        if collected is not None:
            collected.append(votes)
        return routed


@dataclass(frozen=True)
class LayerCall:
    """One recorded call of a capsule layer, see :func:`record_layers`.

    Shapes: ``couplings`` one (B, P, I, J) per iteration; ``votes`` (B, P, I, J, D) if they were requested.
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


def current_recording() -> _Recording | None:
    """What :func:`record_layers` records in this thread, or None."""
    return None if torch.compiler.is_compiling() else _recording.get()


@contextlib.contextmanager
def record_layers(*, votes: bool = False) -> Iterator[list[LayerCall]]:
    """Record every capsule layer call that this thread makes inside the block, in order.

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
