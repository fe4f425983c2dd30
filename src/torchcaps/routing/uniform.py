r"""Uniform routing: equal couplings, that is, no routing.

Gu, Tresp, Hu: Capsule Network is Not More Robust than Convolutional Network, 2021, section 3 ("NoR").

.. math:: s_j = \sum_i \hat u_{j|i} / n_i, \quad n_i = \text{number of parents of child } i

This equals the first iteration of dynamic routing, so that votes have the same scale in both.
"""

from __future__ import annotations

from torch import Tensor

from torchcaps.functional import softmax_over_parents, weighted_votes
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
