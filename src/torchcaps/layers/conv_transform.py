r"""Convolutional transforms: a parent receives votes from the K x K receptive field below it.

Hinton, Sabour, Frosst: Matrix Capsules with EM Routing, 2018, https://openreview.net/forum?id=HJWLfGWRb, section 4.
Chen et al.: Generalized Capsule Networks with Trainable Routing Procedure, 2019, https://arxiv.org/abs/1808.08692.

.. math:: V_{ij} = M_i W_{ij} \quad\text{(right)} \qquad\text{or}\qquad V_{ij} = W_{ij} M_i \quad\text{(left)}

W is one matrix per (cell of the receptive field, child type, parent type), shared by all parent positions.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.errors import TorchcapsError
from torchcaps.kernels.vote_factors import VoteFactors
from torchcaps.layers.transform import Capsules, PoseShape, Transform, matrix_votes, matrix_weight, weight_by_parent
from torchcaps.routing.base import LayerShape


class ConvTransform(Transform):
    """Votes of matrix or vector capsules in K x K receptive fields, without padding.

    Args:
        child_grid: height and width of the children.
        types: child types.
        parents: parent types.
        child_pose, parent_pose: (p, q), a pose as p rows of q elements, row-major. ``right`` keeps p and has q x q'
            weights per pair; ``left`` keeps q and has p' x p. (1, D) is a vector with a full D x D' matrix.
        kernel: K, or (rows, columns) for a kernel that is not square.
        stride: at most K, so that every child is in a receptive field.
        multiply: ``right`` or ``left``, the side of the pose on which W is multiplied.
        spread: standard deviation of the initial W; None preserves the scale of the poses.
        start: ``random``, W is Gaussian noise; ``identity``, the identity plus noise with a standard deviation of 0.1,
            unless ``spread`` is given.

    Shapes: pose (B, H, W, types, p*q) to votes (B, P, K*K*types, parents, p'*q'); slots ordered row, column, type.

    >>> layer = ConvTransform((14, 14), 8, 16, kernel=3, stride=2)
    >>> layer(Capsules(torch.zeros(2, 14, 14, 8, 16))).shape, layer.grid
    (torch.Size([2, 36, 72, 16, 16]), (6, 6))
    """

    def __init__(
        self,
        child_grid: tuple[int, int],
        types: int,
        parents: int,
        *,
        child_pose: PoseShape = (4, 4),
        parent_pose: PoseShape = (4, 4),
        kernel: int | tuple[int, int],
        stride: int = 1,
        multiply: str = "right",
        spread: float | None = None,
        start: str = "random",
    ) -> None:
        window = (kernel, kernel) if isinstance(kernel, int) else kernel
        fits = all(stride <= length <= side for length, side in zip(window, child_grid, strict=True))
        if not (stride >= 1 and fits):
            raise TorchcapsError(
                f"a kernel of {kernel} with stride {stride} does not fit {child_grid[0]}x{child_grid[1]} capsules: "
                "choose 1 <= stride <= kernel <= side of the grid"
            )
        grid = ((child_grid[0] - window[0]) // stride + 1, (child_grid[1] - window[1]) // stride + 1)
        # Children beyond these rows and columns are in no receptive field.
        height, width = (stride * (side - 1) + length for side, length in zip(grid, window, strict=True))
        numbers = torch.arange(height * width * types).view(1, height, width, types)
        super().__init__(_windows(numbers, window, stride).squeeze(0))
        slots = window[0] * window[1] * types
        size = parent_pose[0] * parent_pose[1]
        self.shape = LayerShape(
            grid[0] * grid[1],
            slots,
            parents,
            size,
            distinct=height * width * types,
            child_size=child_pose[0] * child_pose[1],
        )
        self.grid, self.kernel, self.window, self.stride = grid, kernel, window, stride
        self.child_pose, self.parent_pose, self.multiply = child_pose, parent_pose, multiply
        self.weight = matrix_weight(slots, parents, child_pose, parent_pose, multiply, spread, start)

    def gather(self, values: Tensor) -> Tensor:
        return _windows(values, self.window, self.stride)

    def forward(self, capsules: Capsules) -> Tensor:
        return matrix_votes(self.gather(capsules.pose), self.weight, self.child_pose, self.parent_pose, self.multiply)

    def factors(self, capsules: Capsules) -> VoteFactors | None:
        if self.multiply != "right" or self.child_index is None:
            return None
        height, width = (self.stride * (side - 1) + length for side, length in zip(self.grid, self.window, strict=True))
        poses = capsules.pose[:, :height, :width].flatten(1, 3).unflatten(2, self.child_pose)
        active = None if capsules.activation is None else capsules.activation[:, :height, :width].flatten(1, 3)
        slots = torch.arange(self.shape.children)
        offset = torch.empty(0, self.shape.size)
        return VoteFactors(
            poses, active, weight_by_parent(self.weight, self.shape.parents), self.child_index, slots, offset
        )

    def extra_repr(self) -> str:
        return f"weight={tuple(self.weight.shape)}, kernel={self.kernel}, stride={self.stride}, grid={self.grid}"


def _windows(values: Tensor, window: tuple[int, int], stride: int) -> Tensor:
    """Extract all K x K windows: (B, H, W, N, ...) to (B, P, K*K*N, ...)."""
    windows = values.unfold(1, window[0], stride).unfold(2, window[1], stride)  # (B, h, w, N, ..., K, K)
    return windows.movedim((-2, -1), (3, 4)).flatten(3, 5).flatten(1, 2)


class ChannelConvTransform(Transform):
    """A separate convolution for each pair of child and parent type (choi2019), computed as one grouped convolution.

    Args:
        child_grid: height and width of the children.
        types: child types.
        parents: parent types.
        child_size, parent_size: size of a pose.
        kernel, stride, padding: of the convolution; the kernel is a number, or (rows, columns).

    Shapes: pose (B, H, W, types, child_size) to votes (B, P, types, parents, parent_size).

    >>> layer = ChannelConvTransform((14, 14), 8, 8, 16, 32, kernel=3, stride=2, padding=1)
    >>> layer(Capsules(torch.zeros(2, 14, 14, 8, 16))).shape, layer.grid
    (torch.Size([2, 49, 8, 8, 32]), (7, 7))
    """

    def __init__(
        self,
        child_grid: tuple[int, int],
        types: int,
        parents: int,
        child_size: int,
        parent_size: int,
        *,
        kernel: int | tuple[int, int],
        stride: int = 1,
        padding: int = 0,
    ) -> None:
        super().__init__()
        rows, columns = (kernel, kernel) if isinstance(kernel, int) else kernel
        height, width = (
            (side + 2 * padding - length) // stride + 1
            for side, length in zip(child_grid, (rows, columns), strict=True)
        )
        if min(height, width) < 1:
            raise TorchcapsError(
                f"a {rows}x{columns} convolution with padding {padding} does not fit {child_grid[0]}x{child_grid[1]} "
                "capsules: use a larger image or fewer capsule layers"
            )
        self.grid, self.shape = (height, width), LayerShape(height * width, types, parents, parent_size)
        self.stride, self.padding = stride, padding
        self.whole = child_grid == (rows, columns) and padding == 0
        self.convolutions = types * parents  # that the weight holds
        # Glorot initialization per pair, the default of the authors' framework.
        bound = (6 / (rows * columns * (child_size + parent_size))) ** 0.5
        weight = torch.empty(types * parents * parent_size, child_size, rows, columns)
        self.weight = nn.Parameter(nn.init.uniform_(weight, -bound, bound))
        self.bias = nn.Parameter(torch.zeros(types * parents * parent_size))

    def forward(self, capsules: Capsules) -> Tensor:
        types, parents, size = self.shape.children, self.shape.parents, self.shape.size
        if self.whole:  # the kernel covers the grid: a matrix product per type is several times faster
            windows = capsules.pose.permute(3, 0, 4, 1, 2).flatten(2)  # (I, B, D_child*H*W)
            weight = self.weight.view(types, parents * size, -1)  # (I, J*D, D_child*H*W)
            # In this order, the gradient of the weight has its memory layout.
            votes = torch.baddbmm(self.bias.view(types, -1, 1), weight, windows.transpose(1, 2))  # (I, J*D, B)
            return votes.permute(2, 0, 1).reshape(-1, 1, types, parents, size)
        maps = capsules.pose.permute(0, 3, 4, 1, 2).flatten(1, 2)  # (B, I*D_child, H, W)
        voted = F.conv2d(maps, self.weight, self.bias, self.stride, self.padding, groups=types)  # (B, I*J*D, h, w)
        return torch.unflatten(voted.flatten(2).transpose(1, 2), 2, (types, parents, size))

    def extra_repr(self) -> str:
        return f"weight={tuple(self.weight.shape)}, stride={self.stride}, padding={self.padding}, grid={self.grid}"
