r"""Inverted dot-product attention: parents compete for each child by the agreement of its vote with their pose.

Tsai, Srivastava, Goh, Salakhutdinov: Capsules with Inverted Dot-Product Attention Routing, 2020,
https://arxiv.org/abs/2002.04764, section 2.

.. math::
    c_{ij} = \mathrm{softmax}_j\Big(\frac{\hat u_{j|i} \cdot v_j}{\sqrt D}\Big), \quad
    s_j = \sum_i c_{ij} \hat u_{j|i}, \quad v_j = \mathrm{LayerNorm}(s_j)

The first couplings are uniform. In contrast to dynamic routing, logits do not add up over the iterations, the pose is
normalized instead of squashed, and all layers of a network may iterate together
(:class:`torchcaps.layers.ConcurrentStack`). In a convolutional layer the parents of one position compete.
"""

from __future__ import annotations

from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.functional import agreement, weighted_votes
from torchcaps.routing.base import (
    IterativeRouting,
    LayerShape,
    Nonlinearity,
    Routed,
    RoutingRecord,
    check_iterations,
    routings,
)


class InvertedAttentionRouting(IterativeRouting):
    """Attention of the parents to their children.

    Args:
        iterations: T, how often the couplings are computed; in the first iteration they are uniform.
    """

    largest_vote = 1e12  # products of larger votes would overflow float32

    def __init__(self, shape: LayerShape, *, iterations: int = 2) -> None:
        super().__init__(shape)
        check_iterations(iterations)
        if iterations < 1:
            raise TorchcapsError(f"inverted attention routing needs at least 1 iteration, got {iterations}")
        self.iterations = iterations

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
        if previous is None:
            couplings = votes.new_full((), 1 / votes.shape[3]).expand(votes.shape[:4])
        else:
            couplings = (agreement(votes, nonlinearity(previous.pose)) / votes.shape[4] ** 0.5).softmax(3)
        return Routed(weighted_votes(couplings, votes), couplings=[couplings])

    def extra_repr(self) -> str:
        return f"iterations={self.iterations}"


routings.add(
    RoutingRecord(
        name="inverted-attention",
        description="parents compete for children by the product of vote and pose",
        paper="tsai2020",
        build=InvertedAttentionRouting,
        iterative=True,
        any_child_order=True,
        any_parent_order=True,
    )
)
