r"""Capsule activation: an affine map for each capsule type, then tanh.

Choi, Seo, Im, Kang: Attention Routing Between Capsules, 2019, https://arxiv.org/abs/1907.01750, section 3.2.

.. math:: u_n = \tanh(A_n s_n + a_n)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class AffineTanh(nn.Module):
    """A nonlinearity that has parameters and does not keep a capsule's direction.

    Shapes: (..., types, size) to the same.

    >>> sum(parameter.numel() for parameter in AffineTanh(8, 16).parameters())
    2176
    """

    def __init__(self, types: int, size: int) -> None:
        super().__init__()
        bound = (3 / size) ** 0.5
        self.weight = nn.Parameter(nn.init.uniform_(torch.empty(types, size, size), -bound, bound))
        self.bias = nn.Parameter(torch.zeros(types, size))

    def forward(self, pose: Tensor) -> Tensor:
        types, size = self.bias.shape
        rows = pose.reshape(-1, types, size).transpose(0, 1)  # (N, places, D)
        # A routing computes in float32 and may call this while the parameters are in half precision.
        bias, weight = self.bias.to(pose.dtype), self.weight.to(pose.dtype)
        mapped = torch.baddbmm(bias.unsqueeze(1), rows, weight).transpose(0, 1)
        return mapped.reshape(pose.shape).tanh()

    def extra_repr(self) -> str:
        return f"types={self.bias.shape[0]}, size={self.bias.shape[1]}"
