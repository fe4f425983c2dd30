"""The factors of votes, from which fused kernels compute the votes where they need them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class VoteFactors:
    """Factors of the votes, V = M W + offset, for routings that do not store the votes.

    Shapes: ``poses`` (B, C, p, q) and ``activation`` (B, C), or None, of all children; ``weight`` (N, q, q', J);
    ``child_index`` (P, I), the child in each slot; ``weight_index`` (I,), the weight of each slot; ``offset`` (I, p*q')
    or, for no offset, (0, p*q').
    """

    poses: Tensor
    activation: Tensor | None
    weight: Tensor
    child_index: Tensor
    weight_index: Tensor
    offset: Tensor

    def to_float(self) -> VoteFactors:
        """Convert half precision to float32, in which routings compute."""

        def convert(values: Tensor) -> Tensor:
            return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values

        active = None if self.activation is None else convert(self.activation)
        poses, weight, offset = map(convert, (self.poses, self.weight, self.offset))
        return replace(self, poses=poses, activation=active, weight=weight, offset=offset)

    def votes(self) -> Tensor:
        """Compute the votes (B, P, I, J, p*q')."""
        seen = self.poses[:, self.child_index]  # (B, P, I, p, q)
        votes = torch.einsum("bpirq,iqsj->bpijrs", seen, self.weight[self.weight_index]).flatten(4)
        return votes + self.offset.unsqueeze(1) if len(self.offset) else votes
