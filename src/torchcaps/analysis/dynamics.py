"""Whether a routing builds parse trees: starved parents, and couplings that are the same for every image.

Mitterreiter, Koch, Giesen, Laue: Why Capsule Neural Networks Do Not Scale: Challenging the Dynamic Parse-Tree
Assumption, 2023, https://arxiv.org/abs/2301.01583.

If capsules parsed an image, a child would choose its parent by what it sees. Two measures of a layer tell how far it is
from that: parents that receive hardly any coupling from any image, and the share of the couplings' variance that does
not depend on the image.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from torchcaps.analysis.inspection import inspect_layers
from torchcaps.data.base import chunks
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model

STARVED = 0.1  # of the mean: a parent that gets less is starved
BATCH = 20


@dataclass(frozen=True)
class RoutingDynamics:
    """How the couplings of a layer change from image to image, in the last iteration.

    Attributes:
        name: of the layer.
        parents: number of parents, over all positions.
        starved: share of the parents whose couplings, summed over children and averaged over images, stay below a tenth
            of the mean over all parents of the layer.
        static: share of the variance of the couplings that lies between pairs of child and parent and not between
            images: 1 if every image has the same couplings; None if all couplings are equal.
        moved: mean absolute difference between the couplings of the first and the last iteration.
    """

    name: str
    parents: int
    starved: float
    static: float | None
    moved: float


def measure_dynamics(
    model: Model, images: Tensor, *, advance: Callable[[int], None] = lambda count: None
) -> list[RoutingDynamics]:
    """Measure every capsule layer on at least two images (B, C, H, W), lowest layer first."""
    if len(images) < 2:
        raise TorchcapsError("how couplings change from image to image can be measured on at least 2 images, got 1")
    totals: list[_Totals] = []
    for part in chunks(len(images), BATCH):
        _, layers = inspect_layers(model, images[part])
        totals = totals or [_Totals(layer.name) for layer in layers]
        for total, layer in zip(totals, layers, strict=True):
            total.add(layer.couplings[0], layer.couplings[-1])
        advance(len(images[part]))
    return [total.result() for total in totals]


class _Totals:
    """Sums over images, in double precision; couplings of all images would not fit into memory."""

    def __init__(self, name: str) -> None:
        self.name, self.images, self.moved = name, 0, 0.0
        self.sums: Tensor | None = None
        self.squares: Tensor | None = None

    def add(self, first: Tensor, last: Tensor) -> None:
        last = last.double()
        sums, squares = last.sum(0), last.square().sum(0)  # (P, I, J)
        self.sums = sums if self.sums is None else self.sums + sums
        self.squares = squares if self.squares is None else self.squares + squares
        self.moved += (last - first.double()).abs().mean((1, 2, 3)).sum().item()
        self.images += len(last)

    def result(self) -> RoutingDynamics:
        assert self.sums is not None
        assert self.squares is not None
        mean = self.sums / self.images
        mass = mean.abs().sum(1)  # (P, J)
        within = (self.squares / self.images - mean.square()).mean().item()
        between = mean.var(correction=0).item()
        total = within + between
        return RoutingDynamics(
            self.name,
            mass.numel(),
            (mass < STARVED * mass.mean()).double().mean().item(),
            between / total if total > 1e-12 * float(mean.abs().max()) ** 2 else None,
            self.moved / self.images,
        )


def describe_dynamics(layers: list[RoutingDynamics]) -> str:
    """Say in one sentence what was measured."""
    words = [
        f"{each.name}: {each.starved:.0%} of {each.parents} parents starved, "
        + ("all couplings equal" if each.static is None else f"{each.static:.0%} of the variance is static")
        for each in layers
    ]
    return "; ".join(words)
