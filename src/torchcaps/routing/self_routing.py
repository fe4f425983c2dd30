r"""Self-routing: each child computes its couplings from its own pose, by a small learned layer of its own.

Hahn, Pyeon, Kim: Self-Routing Capsule Networks, 2019, https://papers.nips.cc/paper/8982-self-routing-capsule-networks,
section 3.

.. math::
    c_{ij} = \mathrm{softmax}_j(W_i u_i + b_i)_j, \quad
    a_j = \frac{\sum_i a_i c_{ij}}{\sum_i a_i}, \quad
    s_j = \frac{\sum_i a_i c_{ij} \hat u_{j|i}}{\sum_i a_i c_{ij}}

No agreement between the votes is computed, and nothing is iterated: it is a mixture of experts, in which a child's
activation weights the distribution over parents that the child proposes. In a convolutional layer the softmax is over
the parents of one position, and the layers W of the slots are shared by all positions, as in the authors' release.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.functional import weighted_votes
from torchcaps.routing.base import LayerShape, Nonlinearity, Routed, Routing, RoutingRecord, routings

MASS_FLOOR = 1e-7  # distributed uniformly over the children, so that a parent without active children has a pose


class SelfRouting(Routing):
    """Couplings from the children's own poses, weighted by their activations.

    The bias (I, J) starts at zero, and the weight (I, C, J) near zero: the first couplings are almost uniform, but the
    first gradient already reaches the layers below. In the authors' release the weight starts at zero.

    >>> layer = LayerShape(positions=1, children=2048, parents=10, size=16, activations=True, child_size=16)
    >>> sum(parameter.numel() for parameter in SelfRouting(layer).parameters())
    348160
    """

    needs_activation = True
    needs_child_pose = True
    gives_activation = True

    def __init__(self, shape: LayerShape) -> None:
        super().__init__(shape)
        assert shape.child_size is not None  # checked by the base class
        self.weight = nn.Parameter(0.01 * torch.randn(shape.children, shape.child_size, shape.parents))
        self.bias = nn.Parameter(torch.zeros(shape.children, shape.parents))

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None,
        *,
        child_index: Tensor | None,
        nonlinearity: Nonlinearity,
        child_pose: Tensor | None = None,
    ) -> Routed:
        if activation is None or child_pose is None:
            raise TorchcapsError("self-routing needs the children's activations (B, P, I), got none")
        batch, positions, children = activation.shape
        rows = child_pose.permute(2, 0, 1, 3).flatten(1, 2)  # (I, B*P, C)
        weight, bias = self.weight.to(votes.dtype), self.bias.to(votes.dtype)
        logits = torch.baddbmm(bias.unsqueeze(1), rows, weight)  # (I, B*P, J)
        shares = logits.softmax(2).view(children, batch, positions, self.shape.parents)
        couplings = shares.permute(1, 2, 0, 3)  # (B, P, I, J)
        weighted = activation.unsqueeze(3) * couplings + MASS_FLOOR / (children * votes.shape[3])
        mass = weighted.sum(2)  # (B, P, J)
        pose = weighted_votes(weighted / mass.unsqueeze(2), votes)
        return Routed(pose, mass / mass.sum(2, keepdim=True), [couplings])


routings.add(
    RoutingRecord(
        name="self-routing",
        description="each child computes its couplings from its own pose",
        paper="hahn2019",
        build=SelfRouting,
        needs="children with activations",
    )
)
