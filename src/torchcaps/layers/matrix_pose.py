"""Poses seen as matrices: the weights between two of them, and the votes that these give."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError, unknown_name

PoseShape = tuple[int, int]


def matrix_weight(
    slots: int, parents: int, child_pose: PoseShape, parent_pose: PoseShape, multiply: str, spread: float | None
) -> nn.Parameter:
    """One matrix per pair of slot and parent: (I, q, J*q') to stand right of the pose, (I, p, J*p') left of it."""
    if multiply not in ("right", "left"):
        raise unknown_name("side of the transform", multiply, ("right", "left"))
    kept, mapped = (0, 1) if multiply == "right" else (1, 0)
    if child_pose[kept] != parent_pose[kept]:
        raise TorchcapsError(
            f"a matrix on the {multiply} of a {child_pose[0]}x{child_pose[1]} pose cannot give "
            f"{parent_pose[0]}x{parent_pose[1]}: the number of {('rows', 'columns')[kept]} must stay {child_pose[kept]}"
        )
    size_in, size_out = child_pose[mapped], parent_pose[mapped]
    spread = size_in**-0.5 if spread is None else spread
    return nn.Parameter(torch.randn(slots, size_in, parents * size_out) * spread)


def weight_by_parent(weight: Tensor, parents: int) -> Tensor:
    """The weight of a transform on the right with its parents last: (N, q, J*q') to (N, q, q', J)."""
    return weight.view(len(weight), weight.shape[1], parents, -1).transpose(2, 3)


def matrix_votes(pose: Tensor, weight: Tensor, child_pose: PoseShape, parent_pose: PoseShape, multiply: str) -> Tensor:
    """Votes V = M W, or V = W M. Shapes: pose (B, P, I, p*q) and the weight above to (B, P, I, J, p'*q')."""
    batch, positions, slots = pose.shape[:3]
    matrices = pose.unflatten(3, child_pose)  # (B, P, I, p, q)
    if multiply == "left":
        matrices = matrices.transpose(3, 4)  # (W M) is the transpose of (M' W'), and the weight is kept as W'
    kept, mapped = matrices.shape[3:]
    # One product per slot, with all images and positions as rows: W is never copied per image.
    rows = matrices.permute(2, 0, 1, 3, 4).reshape(slots, batch * positions * kept, mapped)
    votes = torch.bmm(rows, weight)  # (I, B*P*p, J*q')
    size = parent_pose[1 if multiply == "right" else 0]
    votes = votes.view(slots, batch, positions, kept, weight.shape[2] // size, size)
    order = (1, 2, 0, 4, 3, 5) if multiply == "right" else (1, 2, 0, 4, 5, 3)
    return votes.permute(order).flatten(4)  # (B, P, I, J, p'*q')
