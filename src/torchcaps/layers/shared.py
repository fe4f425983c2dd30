r"""Shared transform: all children vote for a parent through the same matrix.

Gu, Tresp, Hu: Capsule Network is Not More Robust than Convolutional Network, 2021, https://arxiv.org/abs/2103.15459,
section 3.1 (Aff-CapsNet).

.. math:: \hat u_{j|i} = W_j u_i
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchcaps.layers.capsules import Capsules
from torchcaps.layers.transforms import Transform
from torchcaps.routing.base import LayerShape


class SharedTransform(Transform):
    """One matrix per parent, whichever child votes and wherever it is.

    Shapes: pose (B, H, W, N, D_child) to votes (B, 1, H*W*N, parents, parent_size).

    >>> layer = SharedTransform(1152, 10, 8, 16)
    >>> layer.weight.numel(), layer(Capsules(torch.zeros(2, 6, 6, 32, 8))).shape
    (1280, torch.Size([2, 1, 1152, 10, 16]))
    """

    def __init__(self, children: int, parents: int, child_size: int, parent_size: int) -> None:
        super().__init__()
        self.shape = LayerShape(1, children, parents, parent_size)
        # Less than the dense transform's 0.1: with one matrix for all, votes add up instead of cancelling, and squash
        # would start where it is flat.
        self.weight = nn.Parameter(torch.randn(child_size, parents * parent_size) * 0.02)

    def forward(self, capsules: Capsules) -> Tensor:
        votes = self.gather(capsules.pose) @ self.weight  # (B, 1, I, J*D)
        return torch.unflatten(votes, 3, (self.shape.parents, self.shape.size))

    def extra_repr(self) -> str:
        return f"weight={tuple(self.weight.shape)}"
