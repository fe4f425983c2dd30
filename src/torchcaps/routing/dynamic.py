r"""Dynamic routing: couplings increase with the agreement between votes and parent poses.

Sabour, Frosst, Hinton: Dynamic Routing Between Capsules, 2017, https://arxiv.org/abs/1710.09829, procedure 1.

.. math::
    c_{ij} = \mathrm{softmax}_j(b_{ij}), \quad s_j = \sum_i c_{ij} \hat u_{j|i}, \quad v_j = \mathrm{squash}(s_j),
    \quad b_{ij} \leftarrow b_{ij} + \hat u_{j|i} \cdot v_j

The logits b start at zero. Gradients flow through all iterations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.functional import agreement, softmax_over_parents, weighted_votes
from torchcaps.kernels.dynamic import fused_dynamic_applies, fused_dynamic_routing
from torchcaps.kernels.vote_factors import VoteFactors
from torchcaps.routing.base import (
    IterativeRouting,
    LayerShape,
    Nonlinearity,
    Routed,
    RoutingRecord,
    check_iterations,
    routings,
)


class DynamicRouting(IterativeRouting):
    """Routing by agreement.

    Args:
        iterations: T, how often the couplings are computed; in the first iteration they are uniform.
    """

    def __init__(self, shape: LayerShape, *, iterations: int = 3) -> None:
        super().__init__(shape)
        check_iterations(iterations)
        if iterations < 1:
            raise TorchcapsError(f"dynamic routing needs at least 1 iteration, got {iterations}")
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
            logits = votes.new_zeros(votes.shape[:4])
        else:
            logits = previous.state[0] + agreement(votes, nonlinearity(previous.pose))
        couplings = softmax_over_parents(logits, child_index)
        return Routed(weighted_votes(couplings, votes), couplings=[couplings], state=(logits,))

    def route_factors(self, factors: VoteFactors, nonlinearity: Nonlinearity) -> Routed | None:
        if not fused_dynamic_applies(factors):
            return None

        def plainly(children: Tensor, weight: Tensor) -> Tensor:
            own = weight.expand(children.shape[1], -1, -1, -1)  # (I, K, J, D), also of a shared transform
            votes = torch.einsum("bik,ikjd->bijd", children, own).unsqueeze(1)
            return route_plainly(votes, self.iterations, None, nonlinearity).pose.squeeze(1)

        children, weight = factors.poses.squeeze(2), factors.weight.transpose(2, 3)  # (B, I, K), (I or 1, K, J, D)
        pose = fused_dynamic_routing(children, weight, self.iterations, nonlinearity, plainly)
        return Routed(pose.unsqueeze(1))

    def extra_repr(self) -> str:
        return f"iterations={self.iterations}"


def route_plainly(votes: Tensor, iterations: int, child_index: Tensor | None, nonlinearity: Nonlinearity) -> Routed:
    """Dynamic routing in plain PyTorch."""
    routing = DynamicRouting(LayerShape(*votes.shape[1:]), iterations=iterations)
    return routing.forward(votes, None, child_index=child_index, nonlinearity=nonlinearity)


routings.add(
    RoutingRecord(
        name="dynamic",
        description="iterative agreement by scalar product",
        paper="sabour2017",
        build=DynamicRouting,
        iterative=True,
        any_child_order=True,
        any_parent_order=True,
    )
)
