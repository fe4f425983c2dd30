"""A custom routing in one file: children whose vote is close to the mean vote get larger couplings."""

import torch

from torchcaps.functional import safe_norm, weighted_votes
from torchcaps.routing import LayerShape, Routed, Routing, RoutingRecord, routings


class ConsensusRouting(Routing):
    r"""c_{ij} = I/J softmax_i(-a |u_{j|i} - mean_i u_{j|i}|), s_j = \sum_i c_{ij} u_{j|i}, with a learned a."""

    def __init__(self, shape: LayerShape, *, sharpness: float = 1.0) -> None:
        super().__init__(shape)
        self.sharpness = torch.nn.Parameter(torch.tensor(sharpness))

    def forward(self, votes, activation, *, child_index, nonlinearity):  # votes: (B, P, I, J, D)
        distance = safe_norm(votes - votes.mean(2, keepdim=True))  # (B, P, I, J), differentiable at zero
        couplings = (-self.sharpness * distance).softmax(2) * self.shape.children / self.shape.parents
        return Routed(weighted_votes(couplings, votes), couplings=[couplings])


routings.add(
    RoutingRecord(
        name="consensus",
        description="larger couplings for votes close to the mean vote",
        paper="yours",
        build=ConsensusRouting,
        any_child_order=True,
        any_parent_order=True,
    )
)
