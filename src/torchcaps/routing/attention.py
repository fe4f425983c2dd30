r"""Attention routing: at each position, a learned kernel over all votes computes the couplings of each parent.

Choi, Seo, Im, Kang: Attention Routing Between Capsules, 2019, https://arxiv.org/abs/1907.01750, section 3.3.

.. math::
    b_{ij} = \langle K_{ij}, [\hat u_{j|1}, \dots, \hat u_{j|I}] \rangle, \quad
    c_{ij} = \frac{\exp(b_{ij} / \tau)}{\sum_m \exp(b_{mj} / \tau)}, \quad
    s_j = \sum_i c_{ij} \hat u_{j|i}

The kernel of parent j is (I, I D), without bias, and is shared by all positions. The softmax is over the CHILDREN of a
position: each parent distributes its attention, whereas in dynamic routing each child distributes its output. The paper
uses tau = 1.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError
from torchcaps.functional import weighted_votes
from torchcaps.kernels.attention import fused_attention, fused_attention_applies
from torchcaps.routing.base import LayerShape, Nonlinearity, Routed, Routing, RoutingRecord, routings

LARGEST_KERNEL = 100_000_000  # elements; the size grows with the square of the number of children


class AttentionRouting(Routing):
    """Attention over the children of each position.

    Args:
        temperature: tau; above 1 the attention is more uniform, below 1 it is sharper.

    >>> layer = LayerShape(positions=49, children=8, parents=8, size=32)
    >>> tuple(AttentionRouting(layer).kernel.shape)  # (J, I*D, I)
    (8, 256, 8)
    """

    def __init__(self, shape: LayerShape, *, temperature: float = 1.0) -> None:
        super().__init__(shape)
        if not temperature > 0:
            raise TorchcapsError(f"attention routing needs a temperature above 0, got {temperature}")
        if (numbers := shape.parents * shape.children**2 * shape.size) > LARGEST_KERNEL:
            raise TorchcapsError(
                f"attention routing over {shape.children} children per position would need a kernel of {numbers:,} "
                f"elements, at most {LARGEST_KERNEL:,} are allowed: use fewer types, or layers like those of ar-capsnet"
            )
        self.temperature = temperature
        self.kernel = nn.Parameter(torch.empty(shape.parents, shape.children * shape.size, shape.children))
        # Glorot initialization of a (D, I) convolution with I output channels, the default of the authors' framework.
        bound = (3 / (shape.children * shape.size)) ** 0.5
        nn.init.uniform_(self.kernel, -bound, bound)

    def forward(
        self,
        votes: Tensor,
        activation: Tensor | None,
        *,
        child_index: Tensor | None,
        nonlinearity: Nonlinearity,
    ) -> Routed:
        kernel = self.kernel.to(votes.dtype)

        def plainly(votes: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
            return attend_plainly(votes, kernel, self.temperature)

        fused = fused_attention_applies(votes, kernel)
        attended = fused_attention(votes, kernel, self.temperature, plainly) if fused else plainly(votes, kernel)
        return Routed(attended[0], couplings=[attended[1]])

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}"


def attend_plainly(votes: Tensor, kernel: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Attention routing in plain PyTorch: poses (B, P, J, D) and couplings (B, P, I, J)."""
    batch, positions, children, parents, size = votes.shape
    per_parent = votes.permute(3, 0, 1, 2, 4).reshape(parents, batch * positions, children * size)  # (J, B*P, I*D)
    logits = torch.bmm(per_parent, kernel)  # (J, B*P, I)
    shares = (logits / temperature).softmax(2)
    couplings = shares.view(parents, batch, positions, children).permute(1, 2, 3, 0)  # (B, P, I, J)
    return weighted_votes(couplings, votes), couplings


routings.add(
    RoutingRecord(
        name="attention",
        description="a learned kernel over all votes of a place, softmax over the children",
        paper="choi2019",
        build=AttentionRouting,
        needs="few children per place",
    )
)
