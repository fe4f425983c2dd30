r"""Discriminative routing: gradient ascent on the couplings lengthens capsules of true classes and shortens the others.

Yang, Li, Yu: Routing Towards Discriminative Power of Class Capsules, 2021, https://arxiv.org/abs/2103.04278,
section III.

.. math::
    v_j = \sum_i b_{ij} \hat u_{j|i} = U^T b_j, \qquad
    F(b) = \sum_k \delta_{jk} \, b_j^T U_k U_k^T b_j - \lambda |b_j|_2^2 \quad (\text{or } \lambda |b_j|_1), \qquad
    b_j \leftarrow b_j + \gamma \, \partial F / \partial b_j

Delta is +1 if image k is of class j, otherwise -1. The couplings b are the same for all images, have no softmax and get
no gradient from backpropagation: after each optimizer step they take one ascent step. Only this step uses labels.
U (U^T b) is computed as two products; U U^T is never formed.

Two choices. Algorithm 1 of the paper updates W first and then b. The ascent step here reuses the votes of the forward
pass before that update of W: votes of the new W would need a second forward pass, and the paper saves time by having
none. Equation 15 has the l1 penalty as 2 gamma lambda sign(b), twice the gradient of the objective in equation 14; we
follow equation 15.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, distributed

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.functional import common_agreement, commonly_weighted_votes
from torchcaps.routing.base import LayerShape, Nonlinearity, Routed, Routing, RoutingRecord, routings

PENALTIES = {"l1": 0.1, "l2": 1.0}  # with the default weight


class DiscriminativeRouting(Routing):
    """Couplings (P, I, J) that are learned by gradient ascent on an objective of their own.

    Args:
        penalty: ``l1`` makes couplings sparse, ``l2`` keeps them small.
        gamma: step size. The paper gives no value. The objective is a sum over the batch, so that what the ascent does
            to the couplings is proportional to gamma times the number of images seen. The default is for about 50,000
            images, a product of 1.6; a product of 5 lowers the accuracy. No value was found that beats frozen
            couplings, ``gamma=0``, by more than chance (results/discriminative-step.json).
        weight: lambda, the weight of the penalty; None for 1 (l2) or 0.1 (l1), which shrink a coupling of 0.1 equally.
            The paper's example, 0.001, has no effect beside the votes: both penalties then give the same couplings.
        start: initial value of every coupling; None for 1 / parents.
    """

    alternating = True
    couplings: Tensor

    def __init__(
        self,
        shape: LayerShape,
        *,
        penalty: str,
        gamma: float = 3e-5,
        weight: float | None = None,
        start: float | None = None,
    ) -> None:
        super().__init__(shape)
        if penalty not in PENALTIES:
            raise unknown_name("penalty", penalty, PENALTIES)
        weight = PENALTIES[penalty] if weight is None else weight
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
        # Copied, because the backward pass may run after an ascent step.
        couplings = self.couplings.to(votes.dtype, copy=True)
        pose = commonly_weighted_votes(couplings, votes)
        return Routed(pose, couplings=[couplings.expand(votes.shape[0], -1, -1, -1)])

    @torch.no_grad()
    def after_step(self, votes: Tensor, slope: Tensor) -> None:
        """Take one ascent step. ``slope`` (B, P, J, D) is the gradient of the objective with respect to the poses.

        In the class layer it is 2 delta U^T b; in lower layers it follows by the chain rule. Its product with the votes
        is the gradient of the couplings.
        """
        gradient = common_agreement(votes, slope)  # (P, I, J)
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(gradient)  # exact, because the objective is a sum over images
        if self.penalty == "l2":
            gradient -= 2 * self.weight * self.couplings
        else:
            gradient -= 2 * self.weight * self.couplings.sign()  # 0 at 0; equation 15 has the factor 2 here too
        step = self.gamma * gradient
        # Squares of votes may overflow although the votes are finite: skip such steps.
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
