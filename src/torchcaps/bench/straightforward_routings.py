"""Routings as most public implementations write them: every product of the votes is stored in their size.

The parameters are those of the given routing; a test compares outputs and gradients.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torchcaps.functional import softmax_over_parents
from torchcaps.routing import Routed, Routing
from torchcaps.routing.base import IterativeRouting, Nonlinearity
from torchcaps.routing.dynamic import DynamicRouting
from torchcaps.routing.em import EMRouting
from torchcaps.routing.inverted_attention import InvertedAttentionRouting
from torchcaps.routing.self_attention import SelfAttentionRouting
from torchcaps.routing.self_routing import MASS_FLOOR, SelfRouting
from torchcaps.routing.variational_bayes import ALPHA, KAPPA, VariationalBayesRouting


class WideRouting(Routing):
    """A routing with the parameters and settings of another, its ``inner`` one."""

    inner: Any

    def __init__(self, routing: Routing) -> None:
        super().__init__(routing.shape)
        self.inner = routing
        self.iterations: int = getattr(routing, "iterations", 0)

    @staticmethod
    def applies(routing: Any) -> bool:
        """Whether these settings have a straightforward form."""
        return True


class WideDynamicRouting(WideRouting):
    """Dynamic routing whose logits are repeated for every pose dimension."""

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None,
        *,
        child_index: Tensor | None,
        nonlinearity: Nonlinearity,
    ) -> Routed:
        logits = torch.zeros_like(votes)  # (B, P, I, J, D)
        for iteration in range(self.iterations):
            if child_index is None:
                couplings = logits.softmax(3)
            else:
                each = [softmax_over_parents(part, child_index) for part in logits.unbind(4)]
                couplings = torch.stack(each, 4)
            pose = (couplings * votes).sum(2, keepdim=True)  # (B, P, 1, J, D)
            if iteration < self.iterations - 1:
                logits = logits + (votes * nonlinearity(pose)).sum(4, keepdim=True)
        return Routed(pose.squeeze(2))


class WideEMRouting(WideRouting):
    """EM routing that computes densities elementwise, for all votes at once."""

    needs_activation = True

    @staticmethod
    def applies(routing: Any) -> bool:
        return bool(routing.activation == "mdl")

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None,
        *,
        child_index: Tensor | None,
        nonlinearity: Nonlinearity,
    ) -> Routed:
        assert activation is not None  # checked by the base class
        inner, size = self.inner, votes.shape[4]
        assignment = softmax_over_parents(torch.zeros_like(votes[..., 0]), child_index)
        for iteration in range(self.iterations):
            weights = (assignment * activation.unsqueeze(3)).unsqueeze(4).repeat(1, 1, 1, 1, size)  # as wide as votes
            mass = weights.sum(2, keepdim=True)  # (B, P, 1, J, D)
            weights = (weights + inner.mass_floor / votes.shape[2]) / (mass + inner.mass_floor)
            mean = (weights * votes).sum(2, keepdim=True)
            variance = (weights * (votes - mean) ** 2).sum(2, keepdim=True) + inner.variance_floor
            cost = (inner.beta_u.view(-1, 1) + variance.sqrt().log()) * mass / inner.expected_mass
            active = torch.sigmoid(inner.temperatures[iteration] * (inner.beta_a - cost.sum(4)))  # (B, P, 1, J)
            if iteration < self.iterations - 1:
                density = -((votes - mean) ** 2) / (2 * variance) - variance.sqrt().log() - 0.5 * math.log(2 * math.pi)
                joint = density.sum(4) + (active + 1e-30).log()  # (B, P, I, J)
                assignment = softmax_over_parents(joint, child_index)
        return Routed(mean.squeeze(2), active.squeeze(2))


class WideInvertedAttentionRouting(WideRouting, IterativeRouting):
    """Inverted attention by products that have the size of the votes."""

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
        logits = torch.zeros_like(votes[..., 0])
        if previous is not None:
            logits = (votes * nonlinearity(previous.pose).unsqueeze(2)).sum(4) / votes.shape[4] ** 0.5
        couplings = logits.softmax(3)
        return Routed((couplings.unsqueeze(4) * votes).sum(2), couplings=[couplings])


class WideVariationalBayesRouting(WideRouting, IterativeRouting):
    """Variational Bayes routing with diagonal covariances that stores the squared differences of all votes."""

    needs_activation = True
    gives_activation = True

    @staticmethod
    def applies(routing: Any) -> bool:
        return bool(routing.covariance == "diagonal")

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
        assert activation is not None  # checked by the base class
        logits, size = torch.zeros_like(votes[..., 0]), votes.shape[4]
        if previous is not None:
            offset, precision = previous.state
            distance = ((votes - previous.pose.unsqueeze(2)) ** 2 * precision.unsqueeze(2)).sum(4)
            logits = offset.unsqueeze(2) - 0.5 * distance
        assignment = softmax_over_parents(logits, child_index)
        weights = (assignment * activation.unsqueeze(3)).unsqueeze(4).repeat(1, 1, 1, 1, size)  # as wide as votes
        mass = weights[..., 0].sum(2)  # (B, P, J)
        mean = (weights * votes).sum(2) / (KAPPA + mass).unsqueeze(3)
        scatter = (weights * (votes - mean.unsqueeze(2)) ** 2).sum(2)
        inverse = 1 + scatter + KAPPA * mean**2
        log_share = torch.digamma(ALPHA + mass) - torch.digamma((ALPHA + mass).sum(2, keepdim=True))
        halves = 0.5 * ((size + 1 + mass).unsqueeze(3) - torch.arange(size, device=votes.device))
        log_precision = torch.digamma(halves).sum(3) + size * math.log(2) - inverse.log().sum(3)
        entropy = 0.5 * (size * math.log(2 * math.pi * math.e) - log_precision)
        active = self.inner._normalize(-log_share.exp() * entropy).sigmoid()
        offset = log_share + 0.5 * log_precision - 0.5 * size / (KAPPA + mass)
        return Routed(mean, active, [assignment], (offset, (size + 1 + mass).unsqueeze(3) / inverse))


class WideSelfRouting(WideRouting):
    """Self-routing whose weights are repeated for every image."""

    needs_activation = True
    needs_child_pose = True
    gives_activation = True

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None,
        *,
        child_index: Tensor | None,
        nonlinearity: Nonlinearity,
        child_pose: Tensor | None = None,
    ) -> Routed:
        assert activation is not None
        assert child_pose is not None
        weight = self.inner.weight.repeat(*votes.shape[:2], 1, 1, 1)  # (B, P, I, C, J)
        logits = (child_pose.unsqueeze(3) @ weight).squeeze(3) + self.inner.bias  # (B, P, I, J)
        couplings = logits.softmax(3)
        weighted = activation.unsqueeze(3) * couplings + MASS_FLOOR / (votes.shape[2] * votes.shape[3])
        mass = weighted.sum(2)  # (B, P, J)
        pose = (weighted.unsqueeze(4) * votes).sum(2) / mass.unsqueeze(3)
        return Routed(pose, mass / mass.sum(2, keepdim=True))


class WideSelfAttentionRouting(WideRouting):
    """Self-attention that forms the products of all pairs of votes."""

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None,
        *,
        child_index: Tensor | None,
        nonlinearity: Nonlinearity,
    ) -> Routed:
        by_parent = votes.transpose(2, 3)  # (B, P, J, I, D)
        pairs = by_parent @ by_parent.transpose(3, 4)  # (B, P, J, I, I)
        logits = pairs.sum(4).transpose(2, 3) / self.shape.size**0.5
        couplings = softmax_over_parents(logits, child_index) + self.inner.bias
        return Routed((couplings.unsqueeze(4) * votes).sum(2))


STRAIGHTFORWARD: dict[type[Routing], type[WideRouting]] = {
    DynamicRouting: WideDynamicRouting,
    EMRouting: WideEMRouting,
    InvertedAttentionRouting: WideInvertedAttentionRouting,
    SelfAttentionRouting: WideSelfAttentionRouting,
    SelfRouting: WideSelfRouting,
    VariationalBayesRouting: WideVariationalBayesRouting,
}
