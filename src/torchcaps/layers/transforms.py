"""Transforms: each child capsule votes for the pose of each of its parents."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from torchcaps.kernels.factors import VoteFactors
from torchcaps.layers.capsules import Capsules
from torchcaps.routing.base import LayerShape


class Transform(nn.Module, ABC):
    """Base of all transforms.

    ``shape`` holds the sizes of the votes; ``grid`` is the parents' (height, width); ``child_index`` (P, I) says
    which child stands in which slot of which position, children numbered from 0 without gaps, or is None where
    each child is seen once.
    """

    shape: LayerShape
    grid: tuple[int, int] = (1, 1)
    child_index: Tensor | None

    def __init__(self, child_index: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("child_index", child_index, persistent=False)

    @abstractmethod
    def forward(self, capsules: Capsules) -> Tensor:
        """Votes (B, P, I, J, D)."""

    def factors(self, capsules: Capsules) -> VoteFactors | None:
        """What the votes are made of, for routings that never store them; None where they are made otherwise."""
        return None

    def gather(self, values: Tensor) -> Tensor:
        """What each position sees of the children: (B, H, W, N, ...) to (B, P, I, ...)."""
        return values.flatten(1, 3).unsqueeze(1)


class DenseTransform(Transform):
    r"""A matrix of its own for every pair of child and parent (sabour2017): \hat u_{j|i} = W_{ij} u_i."""

    def __init__(self, children: int, parents: int, child_size: int, parent_size: int) -> None:
        super().__init__()
        self.shape = LayerShape(1, children, parents, parent_size)
        # The spread of the authors' own release: the sum over a thousand children then starts where squash has slope.
        self.weight = nn.Parameter(torch.randn(children, child_size, parents * parent_size) * 0.1)

    def factors(self, capsules: Capsules) -> VoteFactors:
        slots = torch.arange(self.shape.children)
        weight = self.weight.view(*self.weight.shape[:2], self.shape.parents, self.shape.size).transpose(2, 3)
        poses = capsules.pose.flatten(1, 3).unsqueeze(2)  # (B, I, 1, D_child)
        active = None if capsules.activation is None else capsules.activation.flatten(1, 3)
        return VoteFactors(poses, active, weight, slots.unsqueeze(0), slots, torch.empty(0, self.shape.size))

    def forward(self, capsules: Capsules) -> Tensor:
        pose = self.gather(capsules.pose).squeeze(1)  # (B, I, D_child)
        votes = torch.bmm(pose.transpose(0, 1), self.weight)  # (I, B, J*D): no copy of W per image
        return votes.view(*votes.shape[:2], self.shape.parents, self.shape.size).transpose(0, 1).unsqueeze(1)

    def extra_repr(self) -> str:
        return f"weight={tuple(self.weight.shape)}"
