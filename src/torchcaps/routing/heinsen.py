r"""Heinsen routing: a parent is active if the children that it uses bring more than those that it ignores cost.

Heinsen: An Algorithm for Routing Capsules in All Domains, 2019, https://arxiv.org/abs/1911.00792, Algorithm 1.

.. math::
    &D^{use}_{ij} = a_i R_{ij}, \quad D^{ign}_{ij} = a_i - D^{use}_{ij} \\
    &l_j = \sum_i \beta^{use}_{ij} D^{use}_{ij} - \sum_i \beta^{ign}_{ij} D^{ign}_{ij}, \quad
    a_j = \mathrm{logistic}(l_j) \\
    &\mu_j = \frac{\sum_i D^{use}_{ij} V_{ij}}{\sum_i D^{use}_{ij}}, \quad
    \sigma^2_j = \frac{\sum_i D^{use}_{ij} (V_{ij} - \mu_j)^2}{\sum_i D^{use}_{ij}} + \epsilon \\
    &R_{ij} \propto a_j \, \mathcal N(V_{ij}; \mu_j, \sigma^2_j)

Means and variances are those of EM routing. The activation is not: every pair of child and parent has a learned benefit
of being used and a learned cost of being ignored. Both are linear in the data, so that the logit of a parent can be any
number, whatever the variances are. R starts at 1 / (number of the child's parents).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.errors import TorchcapsError
from torchcaps.functional import softmax_over_parents, squared_distance, weighted_squares, weighted_votes
from torchcaps.routing.base import (
    IterativeRouting,
    LayerShape,
    Nonlinearity,
    Routed,
    RoutingRecord,
    check_iterations,
    routings,
)

START = 0.01  # standard deviation of the betas at the start: at zero, the votes would get no gradient from activations
TINY_MASS = 1e-7  # distributed over all children, so that the mean of a parent without active children is defined


class HeinsenRouting(IterativeRouting):
    """Routing by learned benefits and costs; betas of use and of ignoring are (I, J) each, shared by all positions.

    Args:
        iterations: T, the number of updates of the parents, with new assignments between consecutive ones.
        variance_floor: epsilon, added to every variance.

    >>> layer = LayerShape(positions=1, children=64, parents=5, size=16, activations=True)
    >>> sum(parameter.numel() for parameter in HeinsenRouting(layer).parameters())
    640
    """

    needs_activation = True
    gives_activation = True
    largest_vote = 1e6  # squares of larger votes, summed over the children, would overflow float32

    def __init__(self, shape: LayerShape, *, iterations: int = 3, variance_floor: float = 1e-5) -> None:
        super().__init__(shape)
        check_iterations(iterations)
        if iterations < 1 or variance_floor <= 0:
            raise TorchcapsError(
                "Heinsen routing needs at least 1 iteration and a positive variance_floor, got "
                f"iterations={iterations}, variance_floor={variance_floor}"
            )
        self.iterations, self.variance_floor = iterations, variance_floor
        self.benefit = nn.Parameter(START * torch.randn(shape.children, shape.parents))
        self.cost = nn.Parameter(START * torch.randn(shape.children, shape.parents))

    def step(
        self,
        votes: Tensor,
        activation: Tensor | None,
        previous: Routed | None,
        iteration: int,
        *,
        child_index: Tensor | None,
        nonlinearity: Nonlinearity,
    ) -> Routed:
        if activation is None:
            raise TorchcapsError("Heinsen routing needs the children's activations (B, P, I), got none")
        if previous is None:
            logits = votes.new_zeros(votes.shape[:4])
        else:
            log_activation, variance = previous.state
            distance = 0.5 * squared_distance(votes, previous.pose, 1 / variance)  # (B, P, I, J)
            # The factor of 2 pi is the same for all parents and cancels.
            logits = (log_activation - 0.5 * variance.log().sum(3)).unsqueeze(2) - distance
        assignment = softmax_over_parents(logits, child_index)  # R
        active = activation.unsqueeze(3)  # (B, P, I, 1)
        used = active * assignment  # (B, P, I, J)
        benefit, cost = self.benefit.to(votes.dtype), self.cost.to(votes.dtype)
        logit = (benefit * used).sum(2) - (cost * (active - used)).sum(2)  # (B, P, J)
        share = (used + TINY_MASS / votes.shape[2]) / (used.sum(2, keepdim=True) + TINY_MASS)
        mean = weighted_votes(share, votes)  # (B, P, J, D)
        variance = weighted_squares(share, votes, mean) + self.variance_floor
        return Routed(mean, logit.sigmoid(), [assignment], (F.logsigmoid(logit), variance))

    def extra_repr(self) -> str:
        return f"iterations={self.iterations}, variance_floor={self.variance_floor}"


routings.add(
    RoutingRecord(
        name="heinsen",
        description="learned benefits of used and costs of ignored children activate Gaussian clusters of votes",
        paper="heinsen2019",
        build=HeinsenRouting,
        iterative=True,
        needs="children with activations",
    )
)
