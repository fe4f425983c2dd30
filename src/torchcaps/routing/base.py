"""What a routing is: votes in, parent capsules out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.functional import HALF_PRECISION
from torchcaps.kernels.factors import VoteFactors
from torchcaps.registry import Registry

Nonlinearity = Callable[[Tensor], Tensor]
MOST_ITERATIONS = 1000  # settings may come from anybody's file, and a billion iterations would never end


@dataclass(frozen=True)
class LayerShape:
    """The sizes of a capsule layer: all that a routing may know of it when it is built.

    Args:
        positions: P, places of the parents' grid; 1 in a fully connected layer.
        children: I, child slots that one position sees.
        parents: J, parent types.
        size: D, numbers in a parent's pose.
        activations: whether the children carry an activation beside their pose.
        distinct: how many different children there are in all, where windows overlap; None: P * I.
    """

    positions: int
    children: int
    parents: int
    size: int
    activations: bool = False
    distinct: int | None = None


@dataclass(frozen=True)
class Routed:
    """The outcome of routing.

    Shapes: ``pose`` (B, P, J, D), before the layer's nonlinearity; ``activation`` (B, P, J) where the routing
    makes one; ``couplings`` one (B, P, I, J) per iteration, if they were asked for.
    """

    pose: Tensor
    activation: Tensor | None = None
    couplings: list[Tensor] = field(default_factory=list)


class Routing(nn.Module, ABC):
    """Base of all routings. A subclass writes ``forward``; what comes in is checked here, once.

    ``needs_activation`` says that children must have an activation beside their pose.

    Args:
        shape: the sizes of the layer, for routings that hold something per child or parent.

    Args of a call:
        votes: (B, P, I, J, D). Votes in half precision reach ``forward`` as float32, while the routing's own parameters
            may be in half precision: bring those to ``votes.dtype``.
        activation: (B, P, I), how present each child is; None where children have only a pose.
        child_index: (P, I), which child stands in which slot; None in a fully connected layer.
        nonlinearity: what the layer does to a parent's pose afterwards; iterative routings use it inside too.
        trace: also return the couplings of every iteration.

    A routing that learns outside backpropagation sets ``alternating`` and writes ``after_step``. One that sets
    ``recompute`` has votes and all that it made of them forgotten, and made again in the backward pass; its images must
    not need each other.
    """

    alternating: ClassVar[bool] = False
    needs_activation: ClassVar[bool] = False
    recompute: bool = False

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        if self.needs_activation and not shape.activations:
            raise TorchcapsError(
                f"{type(self).__name__} weighs children by their activation, and the capsules below have only a pose: "
                "choose another routing, or primary capsules with an activation"
            )
        self.shape = shape

    def __call__(
        self,
        votes: Tensor,
        activation: Tensor | None = None,
        *,
        child_index: Tensor | None = None,
        nonlinearity: Nonlinearity,
        trace: bool = False,
    ) -> Routed:
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
        # Sums over a thousand children and repeated exponentials need float32, whatever the layers around use.
        if votes.dtype in HALF_PRECISION:
            votes, activation = votes.float(), None if activation is None else activation.float()
        with torch.autocast(votes.device.type, enabled=False):
            routed: Routed = super().__call__(
                votes, activation, child_index=child_index, nonlinearity=nonlinearity, trace=trace
            )
        return routed

    def route_factors(self, factors: VoteFactors, nonlinearity: Nonlinearity) -> Routed | None:
        """The same without votes being stored, where the routing has such a form and it fits; else None."""
        return None

    @abstractmethod
    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None,
        *,
        child_index: Tensor | None,
        nonlinearity: Nonlinearity,
        trace: bool,
    ) -> Routed: ...

    def after_step(self, votes: Tensor, slope: Tensor) -> None:
        """Called in training after each step of the weights, if ``alternating``.

        Args:
            votes: (B, P, I, J, D), of the same forward pass.
            slope: (B, P, J, D), the gradient, with respect to this layer's poses before the nonlinearity, of
                the class capsules' squared lengths, counted positive for true classes and negative for others.
        """


@dataclass(frozen=True)
class RoutingRecord:
    """A routing by name, with what it needs and what it gives. ``build`` takes a LayerShape, then settings."""

    name: str
    description: str
    paper: str
    build: Callable[..., Routing]
    iterative: bool = False
    needs_activation: bool = False
    gives_activation: bool = False
    any_child_order: bool = False  # permuting the children changes nothing
    any_parent_order: bool = False  # permuting the parents permutes the outcome and changes nothing else
    needs: str = ""  # what a layer or a training loop must offer, in a few words


def check_iterations(iterations: int) -> None:
    """Refuse a number of iterations that is no whole number, or with which a forward pass would never end."""
    if not isinstance(iterations, int) or iterations > MOST_ITERATIONS:
        raise TorchcapsError(f"routing takes a whole number of iterations up to {MOST_ITERATIONS}, got {iterations}")


routings: Registry[RoutingRecord] = Registry("routing")


def create_routing(name: str, shape: LayerShape, **options: object) -> Routing:
    """Build a routing by name, for a layer of these sizes (``transform.shape``).

    >>> create_routing("dynamic", LayerShape(positions=1, children=1152, parents=10, size=16), iterations=2)
    DynamicRouting(iterations=2)
    """
    record = routings.get(name)
    try:
        return record.build(shape, **options)
    except TypeError as error:
        raise TorchcapsError(f"routing '{name}' does not take these settings: {error}") from error
