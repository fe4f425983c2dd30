r"""Trainable routing: the couplings are parameters, trained by backpropagation.

Chen, Wang, Zhao, Crandall: Generalized Capsule Networks with Trainable Routing Procedure, 2019,
https://arxiv.org/abs/1808.08692, section 3.1.

.. math:: v_j = \sum_i c_{ij} \hat u_{j|i}

There is one c per child slot and parent at every position, without constraints on sign or sum. Routing is not iterative
and does not depend on the image.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchcaps.functional import commonly_weighted_votes
from torchcaps.routing.base import LayerShape, Nonlinearity, Routed, Routing, RoutingRecord, routings


class TrainableRouting(Routing):
    """Learned couplings (P, I, J), one per position, child slot and parent.

    >>> layer = LayerShape(positions=1, children=1152, parents=10, size=16)
    >>> sum(parameter.numel() for parameter in TrainableRouting(layer).parameters())
    11520
    """

    def __init__(self, shape: LayerShape) -> None:
        super().__init__(shape)
        self.couplings = nn.Parameter(torch.empty(shape.positions, shape.children, shape.parents))
        # Xavier for each position's (I, J) matrix, as in the authors' release.
        bound = (6 / (shape.children + shape.parents)) ** 0.5
        nn.init.uniform_(self.couplings, -bound, bound)

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None,
        *,
        child_index: Tensor | None,
        nonlinearity: Nonlinearity,
    ) -> Routed:
        couplings = self.couplings.to(votes.dtype)
        pose = commonly_weighted_votes(couplings, votes)
        return Routed(pose, couplings=[couplings.expand(votes.shape[0], -1, -1, -1)])


routings.add(
    RoutingRecord(
        name="trainable",
        description="couplings are parameters, learned with the weights",
        paper="chen2019",
        build=TrainableRouting,
    )
)
