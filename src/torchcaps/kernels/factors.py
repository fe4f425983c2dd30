"""What votes are made of, for routings that never store them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class VoteFactors:
    """What votes are made of: V = M W + offset.

    Shapes: ``poses`` (B, C, p, q) and ``activation`` (B, C), or None, of all children; ``weight`` (N, q, q', J);
    ``child_index`` (P, I), which child a slot has; ``weight_index`` (I,), which weight; ``offset`` (I, p*q') added to
    the votes, or (0, p*q') for none.
    """

    poses: Tensor
    activation: Tensor | None
    weight: Tensor
    child_index: Tensor
    weight_index: Tensor
    offset: Tensor

    def votes(self) -> Tensor:
        """All votes after all: (B, P, I, J, p*q')."""
        seen = self.poses[:, self.child_index]  # (B, P, I, p, q)
        votes = torch.einsum("bpirq,iqsj->bpijrs", seen, self.weight[self.weight_index]).flatten(4)
        return votes + self.offset.unsqueeze(1) if len(self.offset) else votes
