"""A capsule layer: transform, routing, nonlinearity."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from torchcaps.layers.capsules import Capsules
from torchcaps.layers.transforms import Transform
from torchcaps.routing.base import Nonlinearity, Routed, Routing

MOST_VOTES = 2**24  # numbers in the votes that are made at once where they are not kept; a step needs many times that


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
        grid = self.transform.grid
        watched = couplings is not None or votes is not None
        routed = None if watched else self._route_factors(capsules)
        if routed is None and self.routing.recompute and not watched:
            routed = self._route_parts(capsules)
        elif routed is None:
            routed = self._route_votes(capsules, couplings, votes)
        pose = self.nonlinearity(routed.pose).unflatten(1, grid)  # (B, H, W, J, D)
        activation = None if routed.activation is None else routed.activation.unflatten(1, grid)
        return Capsules(pose, activation)

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
        some = [slice(start, start + images) for start in range(0, len(capsules.pose), images)]
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
            trace=couplings is not None,
        )
        if couplings is not None:
            couplings.extend(routed.couplings)
        if votes is not None:
            votes.append(cast)
        return routed
