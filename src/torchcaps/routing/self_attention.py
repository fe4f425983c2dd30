r"""Self-attention routing: couplings from the scalar products of all votes for a parent, in one pass.

Mazzia, Salvetti, Chiaberge: Efficient-CapsNet: Capsule Network with Self-Attention Routing, 2021,
https://arxiv.org/abs/2101.12491, section 2.

.. math::
    c_{ij} = \mathrm{softmax}_j\Big(\frac{1}{\sqrt D} \sum_k \hat u_{j|i} \cdot \hat u_{j|k}\Big) + b_{ij}, \quad
    s_j = \sum_i c_{ij} \hat u_{j|i}

A vote that agrees with the other votes for the same parent gets a large coupling. The learned b is a prior of each pair
of child and parent; it is added after the softmax, so couplings need not sum to one.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchcaps.functional import agreement, softmax_over_parents, weighted_votes
from torchcaps.routing.base import LayerShape, Nonlinearity, Routed, Routing, RoutingRecord, routings


class SelfAttentionRouting(Routing):
    """Attention among the votes for a parent, with a learned bias (I, J) that starts at zero.

    The products of all pairs of votes are never formed: their sum over k is the product of a vote with the sum of all
    votes for its parent.

    >>> layer = LayerShape(positions=1, children=16, parents=10, size=16)
    >>> sum(parameter.numel() for parameter in SelfAttentionRouting(layer).parameters())
    160
    """

    largest_vote = 1e12  # squares of larger votes, summed over the children, would overflow float32

    def __init__(self, shape: LayerShape) -> None:
        super().__init__(shape)
        self.bias = nn.Parameter(torch.zeros(shape.children, shape.parents))

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None,
        *,
        child_index: Tensor | None,
        nonlinearity: Nonlinearity,
    ) -> Routed:
        logits = agreement(votes, votes.sum(2)) / self.shape.size**0.5  # (B, P, I, J)
        couplings = softmax_over_parents(logits, child_index) + self.bias.to(votes.dtype)
        return Routed(weighted_votes(couplings, votes), couplings=[couplings])


routings.add(
    RoutingRecord(
        name="self-attention",
        description="couplings from the scalar products of all votes for a parent",
        paper="mazzia2021",
        build=SelfAttentionRouting,
    )
)
