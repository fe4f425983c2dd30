"""Stacks of capsule layers, which route one after the other or iterate together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.layers.capsule_layer import CapsuleLayer, LayerCall, current_recording
from torchcaps.layers.transform import Capsules
from torchcaps.routing import IterativeRouting, Routed


class CapsuleStack(nn.Module):
    """A sequence of capsule layers, with the updates of routings that learn outside backpropagation."""

    def __init__(self, *layers: CapsuleLayer) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.alternating = any(layer.routing.alternating for layer in layers)

    def forward(self, capsules: Capsules) -> tuple[Capsules, Tensor | None]:
        """Return the class capsules, and in training the first layer's votes if :meth:`after_step` needs them."""
        votes: list[Tensor] = []
        wanted = votes if self.training and self.alternating else None
        for index, layer in enumerate(self):
            capsules = layer(capsules, votes=wanted if index == 0 else None)
        return capsules, votes[0].detach() if votes else None

    def after_step(self, votes: Tensor, targets: Tensor) -> None:
        """Update the routings by gradient ascent: longer class capsules where targets are 1, shorter where they are 0.

        The layers above the first are small, so they run again from the first layer's votes to get the gradient in
        the lower layers by the chain rule.

        Shapes: votes (B, P, I, J, D), targets (B, classes).
        """
        layers = list(self)
        layer_votes = [votes.detach().to(torch.promote_types(votes.dtype, torch.float32))]
        with torch.enable_grad():
            poses = [_poses(layers[0], layer_votes[0]).detach().requires_grad_()]
            for below, layer in pairwise(layers):
                capsules = below.nonlinearity(poses[-1]).unflatten(1, below.transform.grid)
                weights = next(layer.transform.parameters(), capsules).dtype  # possibly half precision
                layer_votes.append(layer.transform(Capsules(capsules.to(weights))).to(capsules.dtype))
                poses.append(_poses(layer, layer_votes[-1]))
            signs = (2 * targets - 1).unsqueeze(1)  # (B, 1, classes)
            objective = (signs * poses[-1].square().sum(3)).sum()
        slopes = torch.autograd.grad(objective, poses)
        for layer, own_votes, slope in zip(layers, layer_votes, slopes, strict=True):
            layer.routing.after_step(own_votes.detach(), slope)

    def __iter__(self) -> Iterator[CapsuleLayer]:
        return iter(cast("list[CapsuleLayer]", self.layers))


class ConcurrentStack(CapsuleStack):
    """A stack whose layers iterate together instead of one after the other (tsai2020, section 2.2).

    The first iteration runs from the lowest to the highest layer. In each further one, every layer computes its parents
    from the children and the parents of the iteration before, so that a layer also sees how the layers below it have
    changed their mind. A stack of one layer gives the same result as a :class:`CapsuleStack`.

    All routings must be iterative, with the same number of iterations: dynamic, EM, variational Bayes or inverted
    attention routing. Fused kernels are not used.
    """

    def __init__(self, *layers: CapsuleLayer) -> None:
        super().__init__(*layers)
        for layer in layers:
            if not isinstance(layer.routing, IterativeRouting):
                raise TorchcapsError(
                    f"layers that iterate together need a routing with iterations, and {type(layer.routing).__name__} "
                    "has none: choose another routing, or let the layers route one after the other"
                )
        counts = {cast("IterativeRouting", layer.routing).iterations for layer in layers}
        if len(counts) != 1:
            raise TorchcapsError(f"layers that iterate together need the same number of iterations, got {counts}")
        self.iterations = counts.pop()

    def forward(self, capsules: Capsules) -> tuple[Capsules, Tensor | None]:
        recording = current_recording()
        layers = list(self)
        couplings: list[list[Tensor]] = [[] for _ in layers]
        values, results = [capsules], cast("list[Routed | None]", [None] * len(layers))
        for iteration in range(self.iterations):
            below, values, all_votes, children = values, [capsules], [], []
            for index, layer in enumerate(layers):
                children.append(below[index] if iteration else values[-1])
                parents, results[index], votes = layer.step(children[-1], results[index], iteration)
                values.append(parents)
                all_votes.append(votes)
                couplings[index] += cast("Routed", results[index]).couplings
        if recording is not None:
            for layer, child, parents, shares, votes in zip(
                layers, children, values[1:], couplings, all_votes, strict=True
            ):
                recording.calls.append(LayerCall(layer, child, parents, shares, votes if recording.votes else None))
        return values[-1], None


ORDERS = {"sequential": CapsuleStack, "concurrent": ConcurrentStack}


def build_stack(order: str, *layers: CapsuleLayer) -> CapsuleStack:
    """Build a stack by the order of its iterations: ``sequential``, layer by layer, or ``concurrent``, all together."""
    if order not in ORDERS:
        raise unknown_name("routing order", order, ORDERS)
    return ORDERS[order](*layers)


def _poses(layer: CapsuleLayer, votes: Tensor) -> Tensor:
    return layer.routing(votes, child_index=layer.transform.child_index, nonlinearity=layer.nonlinearity).pose
