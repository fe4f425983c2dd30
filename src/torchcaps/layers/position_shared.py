r"""Class layer transform: children of one type share their matrices over all positions; and coordinate addition.

Hinton, Sabour, Frosst: Matrix Capsules with EM Routing, 2018, https://openreview.net/forum?id=HJWLfGWRb, section 4.

.. math:: V_{ij} = M_i W_{type(i)\,j}
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.kernels.vote_factors import VoteFactors
from torchcaps.layers.transform import Capsules, PoseShape, Transform, matrix_votes, matrix_weight, weight_by_parent
from torchcaps.routing.base import LayerShape


class PositionSharedTransform(Transform):
    """Children at all positions vote for the same parents; W is one matrix per (child type, parent).

    Args:
        child_grid: height and width of the children.
        types: child types.
        parents: number of parents, such as classes.
        child_pose, parent_pose, multiply, spread, start: as in :class:`ConvTransform`.

    Shapes: pose (B, H, W, types, p*q) to votes (B, 1, H*W*types, parents, p'*q').

    >>> import torch
    >>> PositionSharedTransform((4, 4), 16, 5)(Capsules(torch.zeros(2, 4, 4, 16, 16))).shape
    torch.Size([2, 1, 256, 5, 16])
    """

    def __init__(
        self,
        child_grid: tuple[int, int],
        types: int,
        parents: int,
        *,
        child_pose: PoseShape = (4, 4),
        parent_pose: PoseShape = (4, 4),
        multiply: str = "right",
        spread: float | None = None,
        start: str = "random",
    ) -> None:
        super().__init__()
        children = child_grid[0] * child_grid[1] * types
        size, child_size = parent_pose[0] * parent_pose[1], child_pose[0] * child_pose[1]
        self.shape = LayerShape(1, children, parents, size, child_size=child_size)
        self.child_grid = child_grid
        self.child_pose, self.parent_pose, self.multiply = child_pose, parent_pose, multiply
        self.weight = matrix_weight(types, parents, child_pose, parent_pose, multiply, spread, start)

    def forward(self, capsules: Capsules) -> Tensor:
        places = capsules.pose.flatten(1, 2)  # (B, H*W, N, D): grid cells in place of positions
        votes = matrix_votes(places, self.weight, self.child_pose, self.parent_pose, self.multiply)
        return votes.flatten(1, 2).unsqueeze(1)  # (B, 1, H*W*N, J, D)

    def factors(self, capsules: Capsules) -> VoteFactors | None:
        if self.multiply != "right":
            return None
        poses = capsules.pose.flatten(1, 3).unflatten(2, self.child_pose)
        slots = torch.arange(self.shape.children)
        offset = torch.empty(0, self.shape.size)
        weight = weight_by_parent(self.weight, self.shape.parents)
        active = None if capsules.activation is None else capsules.activation.flatten(1, 3)
        return VoteFactors(poses, active, weight, slots.unsqueeze(0), slots % len(self.weight), offset)

    def extra_repr(self) -> str:
        return f"weight={tuple(self.weight.shape)}, child_grid={self.child_grid}"


class CoordinateAddition(Transform):
    """Add the scaled coordinates of each child to two elements of its votes (hinton2018, section 4).

    Args:
        transform: a :class:`PositionSharedTransform`.

    >>> layer = CoordinateAddition(PositionSharedTransform((2, 2), 1, 1))
    >>> votes = layer(Capsules(torch.zeros(1, 2, 2, 1, 16)))
    >>> votes[0, 0, :, 0, 3].detach()  # the rows
    tensor([0.2500, 0.2500, 0.7500, 0.7500])
    """

    offset: Tensor

    def __init__(self, transform: Transform) -> None:
        super().__init__(transform.child_index)
        if not isinstance(transform, PositionSharedTransform):
            raise TorchcapsError(
                f"coordinate addition needs a transform that is shared over positions, and {type(transform).__name__} "
                "has separate weights for each position: drop the coordinates or use PositionSharedTransform"
            )
        self.shape, self.grid, self.transform = transform.shape, transform.grid, transform
        height, width = transform.child_grid
        row_element, column_element = coordinate_elements(transform.parent_pose)
        offset = torch.zeros(height, width, transform.shape.children // (height * width), transform.shape.size)
        offset[..., row_element] = ((torch.arange(height) + 0.5) / height).view(-1, 1, 1)
        offset[..., column_element] = ((torch.arange(width) + 0.5) / width).view(1, -1, 1)
        self.register_buffer("offset", offset.flatten(0, 2).unsqueeze(1), persistent=False)  # (I, 1, D)

    def gather(self, values: Tensor) -> Tensor:
        return self.transform.gather(values)

    def factors(self, capsules: Capsules) -> VoteFactors | None:
        factors = self.transform.factors(capsules)
        return None if factors is None else replace(factors, offset=self.offset.squeeze(1))

    def forward(self, capsules: Capsules) -> Tensor:
        votes: Tensor = self.transform(capsules) + self.offset
        return votes


def coordinate_elements(pose: tuple[int, int]) -> tuple[int, int]:
    """Indices of the elements that hold row and column in a flattened p x q pose.

    >>> coordinate_elements((4, 4)), coordinate_elements((1, 16))
    ((3, 7), (14, 15))
    """
    rows, columns = pose
    return (columns - 1, 2 * columns - 1) if rows > 1 else (columns - 2, columns - 1)
