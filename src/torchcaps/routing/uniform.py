r"""Uniform routing: equal couplings, that is, no routing.

Gu, Tresp, Hu: Capsule Network is Not More Robust than Convolutional Network, 2021, section 3 ("NoR").

.. math:: s_j = \sum_i \hat u_{j|i} / n_i, \quad n_i = \text{number of parents of child } i

This equals the first iteration of dynamic routing, so that votes have the same scale in both.
"""

from __future__ import annotations

from torch import Tensor

from torchcaps.functional import softmax_over_parents, weighted_votes
from torchcaps.kernels.vote_factors import VoteFactors
from torchcaps.routing.base import Nonlinearity, Routed, Routing, RoutingRecord, routings


class UniformRouting(Routing):
    """Equal couplings."""

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None,
        *,
        child_index: Tensor | None,
        nonlinearity: Nonlinearity,
    ) -> Routed:
        if child_index is None:
            couplings = votes.new_full((), 1 / votes.shape[3]).expand(votes.shape[:4])
            return Routed(votes.sum(2) / votes.shape[3], couplings=[couplings])
        couplings = softmax_over_parents(votes.new_zeros(votes.shape[:4]), child_index)
        return Routed(weighted_votes(couplings, votes), couplings=[couplings])

    def route_factors(self, factors: VoteFactors, nonlinearity: Nonlinearity) -> Routed | None:
        """Sum before multiplying: one matrix product in place of the votes."""
        poses, weight = factors.poses, factors.weight  # (B, I, p, q), (I or 1, q, q', J)
        connected = len(factors.child_index) == 1 and len(weight) in (1, poses.shape[1]) and not len(factors.offset)
        if not connected:
            return None
        rows = poses.sum(1) if len(weight) == 1 else poses.transpose(1, 2).flatten(2)  # (B, p, q) or (B, p, I*q)
        sums = rows @ weight.flatten(0, 1).flatten(1)  # (B, p, q'*J)
        by_parent = sums.unflatten(2, weight.shape[2:]).permute(0, 3, 1, 2).flatten(2)  # (B, J, p*q')
        return Routed(by_parent.unsqueeze(1) / weight.shape[3])


routings.add(
    RoutingRecord(
        name="uniform",
        description="equal shares: the average of the votes",
        paper="gu2021",
        build=UniformRouting,
        any_child_order=True,
        any_parent_order=True,
    )
)
