"""The base class of all routings, their registry, and ``create_routing``."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError, wrong_settings
from torchcaps.functional import HALF_PRECISION, clamp_votes, squash
from torchcaps.kernels.vote_factors import VoteFactors
from torchcaps.registry import Registry

Nonlinearity = Callable[[Tensor], Tensor]
MAX_ITERATIONS = 1000  # settings may come from an untrusted file, and a billion iterations would never end


@dataclass(frozen=True)
class LayerShape:
    """The sizes of a capsule layer, which is all that a routing knows about it when it is built.

    Args:
        positions: P, cells of the parents' grid; 1 in a fully connected layer.
        children: I, child slots that each position sees.
        parents: J, parent types.
        size: D, size of a parent's pose.
        activations: whether the children have an activation in addition to their pose.
        distinct: number of distinct children where receptive fields overlap; None for P * I.
        child_size: size of a child's pose, for routings that read it; None if a slot does not hold one child's pose.
    """

    positions: int
    children: int
    parents: int
    size: int
    activations: bool = False
    distinct: int | None = None
    child_size: int | None = None


@dataclass(frozen=True)
class Routed:
    """The result of a routing.

    Shapes: ``pose`` (B, P, J, D), before the layer's nonlinearity; ``activation`` (B, P, J) if the routing computes
    one; ``couplings`` one (B, P, I, J) per iteration, empty if a fused kernel computed the result; ``state`` what the
    next iteration of an :class:`IterativeRouting` needs in addition. For plain votes (B, I, J, D) all shapes are
    without P.
    """

    pose: Tensor
    activation: Tensor | None = None
    couplings: list[Tensor] = field(default_factory=list)
    state: tuple[Tensor, ...] = ()


class Routing(nn.Module, ABC):
    """Base class of all routings. It checks the input once; a subclass implements ``forward``.

    Args:
        shape: the sizes of the layer, for routings with parameters per child or parent.

    Args of a call:
        votes: (B, P, I, J, D), or (B, I, J, D) for a fully connected layer. Votes in half precision are converted to
            float32 before ``forward``, but the routing's own parameters may be in half precision: convert them to
            ``votes.dtype``.
        activation: (B, P, I), or (B, I) for plain votes: the children's activations; None if they have only a pose.
        child_index: (P, I), the child in each slot; None in a fully connected layer.
        nonlinearity: the layer's nonlinearity, which iterative routings also apply between iterations.
        child_pose: (B, P, I, C), or (B, I, C) for plain votes: the children's own poses, for routings that read them.

    Set ``needs_activation`` if children must have an activation, and ``gives_activation`` if parents get one. Set
    ``needs_child_pose`` to get the children's own poses as a keyword argument ``child_pose`` of ``forward``. Set
    ``largest_vote`` if sums over larger votes would overflow: votes are clamped to it before ``forward``. A routing
    that learns outside backpropagation sets ``alternating`` and implements ``after_step``. With ``recompute``, votes
    are recomputed during the backward pass instead of being stored; then the images of a batch must not influence each
    other.

    >>> from torchcaps.routing import DynamicRouting
    >>> routing = DynamicRouting(LayerShape(positions=1, children=6, parents=3, size=4))
    >>> routing(torch.randn(2, 6, 3, 4)).pose.shape  # (B, I, J, D) to (B, J, D)
    torch.Size([2, 3, 4])
    """

    alternating: ClassVar[bool] = False
    needs_activation: ClassVar[bool] = False
    needs_child_pose: ClassVar[bool] = False
    gives_activation: ClassVar[bool] = False
    largest_vote: ClassVar[float] = math.inf
    recompute: bool = False

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        if self.needs_activation and not shape.activations:
            raise TorchcapsError(
                f"{type(self).__name__} needs the children's activations, but the capsules below have only a pose: "
                "choose another routing, or primary capsules with activations"
            )
        if self.needs_child_pose and shape.child_size is None:
            raise TorchcapsError(
                f"{type(self).__name__} reads the poses of single children, and a slot of this transform does not hold "
                "one child: choose another routing or transform"
            )
        self.shape = shape

    def __call__(
        self,
        votes: Tensor,
        activation: Tensor | None = None,
        *,
        child_index: Tensor | None = None,
        nonlinearity: Nonlinearity = squash,
        child_pose: Tensor | None = None,
    ) -> Routed:
        routed: Routed
        if votes.ndim == 4:
            active, poses = (None if each is None else each.unsqueeze(1) for each in (activation, child_pose))
            routed = self(
                votes.unsqueeze(1), active, child_index=child_index, nonlinearity=nonlinearity, child_pose=poses
            )
            active = None if routed.activation is None else routed.activation.squeeze(1)
            return Routed(routed.pose.squeeze(1), active, [couplings.squeeze(1) for couplings in routed.couplings])
        votes, activation, child_pose = self.check_input(votes, activation, child_pose)
        more = {"child_pose": child_pose} if self.needs_child_pose else {}
        with torch.autocast(votes.device.type, enabled=False):
            routed = super().__call__(votes, activation, child_index=child_index, nonlinearity=nonlinearity, **more)
        return routed

    def check_input(
        self, votes: Tensor, activation: Tensor | None, child_pose: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Refuse shapes that the routing was not built for, convert half precision to float32, and clamp the votes."""
        if votes.ndim != 5 or not votes.is_floating_point():
            raise TorchcapsError(
                f"{type(self).__name__} expects votes as floats (B, P, I, J, D), got {votes.dtype} {tuple(votes.shape)}"
            )
        expected = (self.shape.positions, self.shape.children, self.shape.parents, self.shape.size)
        if votes.shape[1:] != expected:
            raise TorchcapsError(
                f"{type(self).__name__} was built for votes (P, I, J, D) = {expected}, got {tuple(votes.shape[1:])}"
            )
        if activation is not None and activation.shape != votes.shape[:3]:
            raise TorchcapsError(
                f"{type(self).__name__} expects one activation per child {tuple(votes.shape[:3])}, "
                f"got {tuple(activation.shape)}"
            )
        if self.needs_child_pose:
            own = (*votes.shape[:3], self.shape.child_size)
            got = None if child_pose is None else tuple(child_pose.shape)
            if got != own:
                raise TorchcapsError(f"{type(self).__name__} expects the children's poses {own}, got {got}")
        # Sums over a thousand children and repeated exponentials need float32, whatever the layers around use.
        if votes.dtype in HALF_PRECISION:
            votes = votes.float()
            activation, child_pose = (None if each is None else each.float() for each in (activation, child_pose))
        if self.largest_vote < math.inf:
            votes = clamp_votes(votes, self.largest_vote)
        return votes, activation, child_pose

    def route_factors(self, factors: VoteFactors, nonlinearity: Nonlinearity) -> Routed | None:
        """Route without storing the votes, if the routing has a fused kernel for this case; otherwise None."""
        return None

    @abstractmethod
    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None,
        *,
        child_index: Tensor | None,
        nonlinearity: Nonlinearity,
    ) -> Routed: ...

    def after_step(self, votes: Tensor, slope: Tensor) -> None:
        """Update what is learned outside backpropagation; called after each optimizer step if ``alternating``.

        Args:
            votes: (B, P, I, J, D), of the same forward pass.
            slope: (B, P, J, D), gradient of the class capsules' squared lengths (positive for true classes, negative
                for the others) with respect to this layer's poses before the nonlinearity.
        """


class IterativeRouting(Routing):
    """Base class of routings with iterations. A subclass implements ``step``, one of them, and sets ``iterations``.

    An iteration is a function of the votes and of the result before, so that the layers of a stack can iterate in
    turns, see :class:`torchcaps.layers.ConcurrentStack`.
    """

    iterations: int

    @abstractmethod
    def step(
        self,
        votes: Tensor,
        activation: Tensor | None,
        previous: Routed | None,
        iteration: int,
        *,
        child_index: Tensor | None,
        nonlinearity: Nonlinearity,
    ) -> Routed:
        """Compute one iteration from the previous one, None for the first; ``couplings`` of the result is one tensor.

        In a stack the votes of two iterations differ, because the layers below have iterated too.
        """

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None,
        *,
        child_index: Tensor | None,
        nonlinearity: Nonlinearity,
    ) -> Routed:
        routed, couplings = None, []
        for iteration in range(self.iterations):
            routed = self.step(votes, activation, routed, iteration, child_index=child_index, nonlinearity=nonlinearity)
            couplings += routed.couplings
        assert routed is not None  # there is at least one iteration
        return Routed(routed.pose, routed.activation, couplings)


@dataclass(frozen=True)
class RoutingRecord:
    """A routing by name, with its requirements. ``build`` takes a LayerShape and the routing's settings."""

    name: str
    description: str
    paper: str
    build: Callable[..., Routing]
    iterative: bool = False
    any_child_order: bool = False  # permuting the children changes nothing
    any_parent_order: bool = False  # permuting the parents permutes the result and changes nothing else
    needs: str = ""  # what the layer or the training loop must provide, in a few words


def check_iterations(iterations: int) -> None:
    """Raise an error unless the number of iterations is an integer of a sensible size."""
    if not isinstance(iterations, int) or iterations > MAX_ITERATIONS:
        raise TorchcapsError(f"iterations must be an integer of at most {MAX_ITERATIONS}, got {iterations}")


routings: Registry[RoutingRecord] = Registry("routing")
"""All routings by name."""


def create_routing(name: str, shape: LayerShape, **options: object) -> Routing:
    """Build a routing by name for a layer of these sizes (``transform.shape``).

    >>> create_routing("dynamic", LayerShape(positions=1, children=1152, parents=10, size=16), iterations=2)
    DynamicRouting(iterations=2)
    """
    record = routings.get(name)
    try:
        return record.build(shape, **options)
    except TypeError as error:
        raise wrong_settings("routing", name, record.build, options, error) from error
