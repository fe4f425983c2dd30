"""Capsule layers one after the other, up to the class capsules."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import cast as cast_type

import torch
from torch import Tensor, nn

from torchcaps.layers.capsule_layer import CapsuleLayer
from torchcaps.layers.capsules import Capsules


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
