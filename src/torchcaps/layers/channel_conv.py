r"""Per-channel convolution: a whole capsule type votes through a convolution of its own.

Choi, Seo, Im, Kang: Attention Routing Between Capsules, 2019, https://arxiv.org/abs/1907.01750, section 3.3.

.. math:: \tilde s^{n}_{(:,:,:,m)} = \mathrm{Conv}_{K \times K}(u_{(:,:,:,m)})

Every pair of a parent type n and a child type m has its own kernel, D_child to D_parent, with bias. A window is summed
up inside the convolution, so at every place each child TYPE casts one vote, not each capsule.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.errors import TorchcapsError
from torchcaps.layers.capsules import Capsules
from torchcaps.layers.transforms import Transform
from torchcaps.routing.base import LayerShape


class ChannelConvTransform(Transform):
    """One convolution per pair of types, done as one grouped convolution.

    Args:
        child_grid: height and width of the children.
        types: of children.
        parents: types of parents.
        child_size, parent_size: numbers in a pose.
        kernel, stride, padding: of the convolution.

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
        kernel: int,
        stride: int = 1,
        padding: int = 0,
    ) -> None:
        super().__init__()
        height, width = ((side + 2 * padding - kernel) // stride + 1 for side in child_grid)
        if min(height, width) < 1:
            raise TorchcapsError(
                f"a {kernel}x{kernel} convolution with padding {padding} does not fit {child_grid[0]}x{child_grid[1]} "
                "capsules: use a larger image or fewer capsule layers"
            )
        self.grid, self.shape = (height, width), LayerShape(height * width, types, parents, parent_size)
        self.stride, self.padding = stride, padding
        self.whole = child_grid == (kernel, kernel) and padding == 0
        # Glorot for each pair's own convolution, the default of the authors' framework.
        bound = (6 / (kernel**2 * (child_size + parent_size))) ** 0.5
        weight = torch.empty(types * parents * parent_size, child_size, kernel, kernel)
        self.weight = nn.Parameter(nn.init.uniform_(weight, -bound, bound))
        self.bias = nn.Parameter(torch.zeros(types * parents * parent_size))

    def forward(self, capsules: Capsules) -> Tensor:
        types, parents, size = self.shape.children, self.shape.parents, self.shape.size
        if self.whole:  # the window is the grid: a matrix product per type, several times faster than a convolution
            windows = capsules.pose.permute(3, 0, 4, 1, 2).flatten(2)  # (I, B, D_child*H*W)
            weight = self.weight.view(types, parents * size, -1).transpose(1, 2)  # (I, D_child*H*W, J*D)
            votes = torch.baddbmm(self.bias.view(types, 1, -1), windows, weight)  # (I, B, J*D)
            return votes.transpose(0, 1).view(-1, 1, types, parents, size)
        maps = capsules.pose.permute(0, 3, 4, 1, 2).flatten(1, 2)  # (B, I*D_child, H, W)
        voted = F.conv2d(maps, self.weight, self.bias, self.stride, self.padding, groups=types)  # (B, I*J*D, h, w)
        return torch.unflatten(voted.flatten(2).transpose(1, 2), 2, (types, parents, size))

    def extra_repr(self) -> str:
        return f"weight={tuple(self.weight.shape)}, stride={self.stride}, padding={self.padding}, grid={self.grid}"
