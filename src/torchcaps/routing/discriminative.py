r"""Discriminative routing: gradient ascent on the couplings toward long capsules of true classes and short others.

Yang, Li, Yu: Routing Towards Discriminative Power of Class Capsules, 2021, https://arxiv.org/abs/2103.04278,
section III.

.. math::
    v_j = \sum_i b_{ij} \hat u_{j|i} = U^T b_j, \qquad
    F(b) = \sum_k \delta_{jk} \, b_j^T U_k U_k^T b_j - \lambda |b_j|_2^2 \quad (\text{or } \lambda |b_j|_1), \qquad
    b_j \leftarrow b_j + \gamma \, \partial F / \partial b_j

Delta is +1 where image k shows class j, else -1. The couplings b are the same for every image, without a softmax, and
backpropagation never touches them: after each step of the weights they take one step of their own, uphill, on the votes
of the same forward pass. Labels are used there and nowhere else. U (U^T b) is two thin products; U U^T is never formed.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, distributed

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.functional import common_agreement, commonly_weighted_votes
from torchcaps.routing.base import LayerShape, Nonlinearity, Routed, Routing, RoutingRecord, routings

PENALTIES = ("l1", "l2")


class DiscriminativeRouting(Routing):
    """Couplings (P, I, J) that climb a gradient of their own.

    Args:
        penalty: ``l1`` makes couplings sparse, ``l2`` keeps them small.
        gamma: size of an ascent step. The objective is a sum over the batch, so a larger batch is a larger step. The
            paper gives none: this is the largest power of ten that does no harm on validation images of digits and
            clothes (results/discriminative-step.json). Ten times as large a step lets the loss rise again after some
            thousand steps.
        weight: lambda, of the penalty.
        start: of every coupling; None for 1 / parents.
    """

    alternating = True
    couplings: Tensor

    def __init__(
        self,
        shape: LayerShape,
        *,
        penalty: str,
        gamma: float = 1e-5,
        weight: float = 0.001,
        start: float | None = None,
    ) -> None:
        super().__init__(shape)
        if penalty not in PENALTIES:
            raise unknown_name("penalty", penalty, PENALTIES)
        if gamma < 0 or weight < 0:
            raise TorchcapsError(
                f"discriminative routing needs gamma and weight of at least 0, got {gamma} and {weight}"
            )
        self.penalty, self.gamma, self.weight = penalty, gamma, weight
        value = 1 / shape.parents if start is None else start
        self.register_buffer("couplings", torch.full((shape.positions, shape.children, shape.parents), value))

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None,
        *,
        child_index: Tensor | None,
        nonlinearity: Nonlinearity,
    ) -> Routed:
        # A copy, because the backward pass may come after an ascent step.
        couplings = self.couplings.to(votes.dtype, copy=True)
        pose = commonly_weighted_votes(couplings, votes)
        return Routed(pose, couplings=[couplings.expand(len(votes), -1, -1, -1)])

    @torch.no_grad()
    def after_step(self, votes: Tensor, slope: Tensor) -> None:
        """One ascent step: slope (B, P, J, D) is how the objective rises with each pose of this layer.

        In the class layer the slope is 2 delta U^T b, and the product with the votes below is U times that. In lower
        layers the slope comes down by the chain rule, and the rest is the same.
        """
        gradient = common_agreement(votes, slope)  # (P, I, J)
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(gradient)  # the objective is a sum over images, so this is exact
        if self.penalty == "l2":
            gradient -= 2 * self.weight * self.couplings
        else:
            gradient -= self.weight * self.couplings.sign()  # 0 at 0
        step = self.gamma * gradient
        # Squares of votes may leave float32 although the votes do not: such a step has no direction to trust.
        self.couplings += torch.where(step.isfinite(), step, 0.0)

    def extra_repr(self) -> str:
        return f"penalty={self.penalty}, gamma={self.gamma}, weight={self.weight}"


for penalty, effect in (("l1", "sparse"), ("l2", "small")):
    routings.add(
        RoutingRecord(
            name=f"discriminative-{penalty}",
            description=f"couplings climb toward the true class after every step; {penalty} keeps them {effect}",
            paper="yang2021",
            build=partial(DiscriminativeRouting, penalty=penalty),
            needs="labels in training",
        )
    )
