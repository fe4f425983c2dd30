r"""Coordinate addition: where a child is, added to what it votes for.

Hinton, Sabour, Frosst: Matrix Capsules with EM Routing, 2018, https://openreview.net/forum?id=HJWLfGWRb, section 4.

The matrices of the class layer are shared over positions and cannot know a child's place. So its scaled (row, column)
is added to the first two elements of the right-hand column of its vote:

.. math:: V_{0, q-1} \mathrel{+}= (y + 1/2) / H, \quad V_{1, q-1} \mathrel{+}= (x + 1/2) / W

for a child at row y and column x of an H x W grid: the centre of its field, in units of the grid. A vector pose has no
right-hand column; there the last two elements are taken.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.kernels.factors import VoteFactors
from torchcaps.layers.capsules import Capsules
from torchcaps.layers.position_shared import PositionSharedTransform
from torchcaps.layers.transforms import Transform


class CoordinateAddition(Transform):
    """A transform whose votes also say where the child is.

    Args:
        transform: one that is shared over positions.

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
                "has weights of its own for each place: drop the coordinates or use PositionSharedTransform"
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
    """Places of row and column in a flattened p x q pose.

    >>> coordinate_elements((4, 4)), coordinate_elements((1, 16))
    ((3, 7), (14, 15))
    """
    rows, columns = pose
    return (columns - 1, 2 * columns - 1) if rows > 1 else (columns - 2, columns - 1)
