"""Capsules, the base class of transforms, fully connected transforms and their registry.

A transform computes the votes of each child capsule for the poses of its parents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.kernels.matrix_votes import fused_votes, fused_votes_apply
from torchcaps.kernels.vote_factors import VoteFactors
from torchcaps.registry import Registry
from torchcaps.routing.base import LayerShape


class Capsules(NamedTuple):
    """Capsules on a grid.

    Shapes: ``pose`` (B, H, W, N, D) for N capsule types; ``activation`` (B, H, W, N), or None if the length of
    the pose takes its place. The output of a fully connected layer has H = W = 1.
    """

    pose: Tensor
    activation: Tensor | None = None


class Transform(nn.Module, ABC):
    """Base class of all transforms.

    ``shape`` holds the sizes of the votes; ``grid`` is the parents' (height, width); ``child_index`` (P, I) is the
    child in each slot of each position, numbered from 0 without gaps, or None if every child is in one slot
    only.
    """

    shape: LayerShape
    grid: tuple[int, int] = (1, 1)
    child_index: Tensor | None

    def __init__(self, child_index: Tensor | None = None) -> None:
        super().__init__()
        self.register_buffer("child_index", child_index, persistent=False)

    @abstractmethod
    def forward(self, capsules: Capsules) -> Tensor:
        """Compute votes (B, P, I, J, D)."""

    def factors(self, capsules: Capsules) -> VoteFactors | None:
        """Factors of the votes, for routings that never store votes; None if the votes are no such product."""
        return None

    def gather(self, values: Tensor) -> Tensor:
        """Gather the children of each position: (B, H, W, N, ...) to (B, P, I, ...)."""
        return values.flatten(1, 3).unsqueeze(1)


class DenseTransform(Transform):
    r"""A separate matrix for every pair of child and parent (sabour2017): \hat u_{j|i} = W_{ij} u_i."""

    def __init__(self, children: int, parents: int, child_size: int, parent_size: int) -> None:
        super().__init__()
        self.shape = LayerShape(1, children, parents, parent_size, child_size=child_size)
        # As in the authors' release: the sum over a thousand children then starts where squash is not flat.
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


class SharedTransform(Transform):
    r"""One matrix per parent, shared by all children and positions.

    Gu, Tresp, Hu: Capsule Network is Not More Robust than Convolutional Network, 2021,
    https://arxiv.org/abs/2103.15459, section 3.1 (Aff-CapsNet).

    .. math:: \hat u_{j|i} = W_j u_i

    Shapes: pose (B, H, W, N, D_child) to votes (B, 1, H*W*N, parents, parent_size).

    >>> layer = SharedTransform(1152, 10, 8, 16)
    >>> layer.weight.numel(), layer(Capsules(torch.zeros(2, 6, 6, 32, 8))).shape
    (1280, torch.Size([2, 1, 1152, 10, 16]))
    """

    def __init__(self, children: int, parents: int, child_size: int, parent_size: int) -> None:
        super().__init__()
        self.shape = LayerShape(1, children, parents, parent_size, child_size=child_size)
        # Less than the dense transform's 0.1: votes by a shared matrix add up instead of canceling, and squash would
        # start where it is flat.
        self.weight = nn.Parameter(torch.randn(child_size, parents * parent_size) * 0.02)

    def factors(self, capsules: Capsules) -> VoteFactors:
        slots = torch.arange(self.shape.children)
        weight = self.weight.view(1, -1, self.shape.parents, self.shape.size).transpose(2, 3)  # (1, D_child, D, J)
        poses = capsules.pose.flatten(1, 3).unsqueeze(2)  # (B, I, 1, D_child)
        active = None if capsules.activation is None else capsules.activation.flatten(1, 3)
        index = torch.zeros_like(slots)
        return VoteFactors(poses, active, weight, slots.unsqueeze(0), index, torch.empty(0, self.shape.size))

    def forward(self, capsules: Capsules) -> Tensor:
        votes = self.gather(capsules.pose) @ self.weight  # (B, 1, I, J*D)
        return torch.unflatten(votes, 3, (self.shape.parents, self.shape.size))

    def extra_repr(self) -> str:
        return f"weight={tuple(self.weight.shape)}"


class NoVotes(Transform):
    """No votes, for routings that compute activations without them (hahn2019): parents have a pose of size 0.

    Shapes: pose (B, H, W, N, child_size) to votes (B, 1, H*W*N, parents, 0).

    >>> NoVotes(128, 10, 16)(Capsules(torch.zeros(2, 4, 4, 8, 16))).shape
    torch.Size([2, 1, 128, 10, 0])
    """

    def __init__(self, children: int, parents: int, child_size: int) -> None:
        super().__init__()
        self.shape = LayerShape(1, children, parents, 0, child_size=child_size)

    def forward(self, capsules: Capsules) -> Tensor:
        batch = capsules.pose.shape[0]  # len() would fix the batch size of an exported graph
        return capsules.pose.new_zeros(batch, 1, self.shape.children, self.shape.parents, 0)


@dataclass(frozen=True)
class TransformRecord:
    """A fully connected transform by name. ``build`` takes (children, parents, child_size, parent_size)."""

    name: str
    description: str
    paper: str
    build: Callable[[int, int, int, int], Transform]


transforms: Registry[TransformRecord] = Registry("transform")
"""All fully connected transforms by name."""

transforms.add(TransformRecord("dense", "a matrix for each pair of child and parent", "sabour2017", DenseTransform))
transforms.add(TransformRecord("shared", "one matrix per parent for all children", "gu2021", SharedTransform))


PoseShape = tuple[int, int]
STARTS = ("random", "identity")
NEAR_IDENTITY = 0.1  # standard deviation around the identity


def matrix_weight(
    slots: int,
    parents: int,
    child_pose: PoseShape,
    parent_pose: PoseShape,
    multiply: str,
    spread: float | None,
    start: str,
) -> nn.Parameter:
    """Create one matrix per pair of slot and parent: (I, q, J*q') for the right side, (I, p, J*p') for the left."""
    if start not in STARTS:
        raise unknown_name("start of the transform", start, STARTS)
    if multiply not in ("right", "left"):
        raise unknown_name("side of the transform", multiply, ("right", "left"))
    kept, mapped = (0, 1) if multiply == "right" else (1, 0)
    if child_pose[kept] != parent_pose[kept]:
        raise TorchcapsError(
            f"a matrix on the {multiply} of a {child_pose[0]}x{child_pose[1]} pose cannot give "
            f"{parent_pose[0]}x{parent_pose[1]}: the number of {('rows', 'columns')[kept]} must stay {child_pose[kept]}"
        )
    size_in, size_out = child_pose[mapped], parent_pose[mapped]
    if spread is None:
        spread = size_in**-0.5 if start == "random" else NEAR_IDENTITY
    weight = torch.randn(slots, size_in, parents * size_out) * spread
    if start == "identity":
        if size_in != size_out:
            raise TorchcapsError(
                f"a transform that starts near the identity needs equal poses, got {child_pose[0]}x{child_pose[1]} to "
                f"{parent_pose[0]}x{parent_pose[1]}: use start 'random'"
            )
        weight.view(slots, size_in, parents, size_out).diagonal(dim1=1, dim2=3).add_(1.0)
    return nn.Parameter(weight)


def weight_by_parent(weight: Tensor, parents: int) -> Tensor:
    """Move the parents last: (N, q, J*q') to (N, q, q', J)."""
    return weight.view(len(weight), weight.shape[1], parents, -1).transpose(2, 3)


def matrix_votes(pose: Tensor, weight: Tensor, child_pose: PoseShape, parent_pose: PoseShape, multiply: str) -> Tensor:
    """Compute votes V = M W, or V = W M. Shapes: pose (B, P, I, p*q) and the weight above to (B, P, I, J, p'*q')."""
    if multiply == "right" and tuple(child_pose) == tuple(parent_pose) == (4, 4) and fused_votes_apply(pose, weight):
        return fused_votes(pose, weight, partial(plain_matrix_votes, child_pose=(4, 4), parent_pose=(4, 4)))
    return plain_matrix_votes(pose, weight, child_pose, parent_pose, multiply)


def plain_matrix_votes(
    pose: Tensor, weight: Tensor, child_pose: PoseShape, parent_pose: PoseShape, multiply: str = "right"
) -> Tensor:
    """:func:`matrix_votes` in PyTorch."""
    batch, positions, slots = pose.shape[:3]
    matrices = pose.unflatten(3, child_pose)  # (B, P, I, p, q)
    if multiply == "left":
        matrices = matrices.transpose(3, 4)  # (W M) is the transpose of (M' W'), and the weight is stored as W'
    kept, mapped = matrices.shape[3:]
    # One product per slot, with all images and positions as rows: W is never copied per image.
    rows = matrices.permute(2, 0, 1, 3, 4).reshape(slots, batch * positions * kept, mapped)
    votes = torch.bmm(rows, weight)  # (I, B*P*p, J*q')
    size = parent_pose[1 if multiply == "right" else 0]
    votes = votes.view(slots, batch, positions, kept, weight.shape[2] // size, size)
    order = (1, 2, 0, 4, 3, 5) if multiply == "right" else (1, 2, 0, 4, 5, 3)
    return votes.permute(order).flatten(4)  # (B, P, I, J, p'*q')
