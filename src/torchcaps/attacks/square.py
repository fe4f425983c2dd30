"""Square: a random search over squares of pixels that needs scores only, no gradients.

Andriushchenko, Croce, Flammarion, Hein: Square Attack, 2020, https://arxiv.org/abs/1912.00049, algorithms 1 and 2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchcaps.attacks.base import Attack, AttackRecord, attacks
from torchcaps.attacks.model_wrapper import ModelWrapper
from torchcaps.errors import TorchcapsError

# The queries, of 10,000, at which the area of the squares is halved (section 5 of the paper).
HALVED_AT = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
SCHEDULE_LENGTH = 10_000


class Square(Attack):
    """Start with vertical stripes of plus or minus epsilon, then keep random squares that lower the margin.

    Args:
        epsilon: as in :class:`Attack`.
        norm: ``linf`` only.
        queries: the largest number of queries per image.
        area: fraction of the image that the first squares cover.
    """

    norms = ("linf",)
    all_views = False

    def __init__(
        self, *, epsilon: float | None = None, norm: str = "linf", queries: int = 1000, area: float = 0.8
    ) -> None:
        super().__init__(epsilon=epsilon, norm=norm)
        if queries < 1 or not 0 < area <= 1:
            raise TorchcapsError(
                f"Square needs at least 1 query and an area above 0 and up to 1, got {queries} queries and area {area}"
            )
        self.queries, self.area = queries, area

    def perturb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        count, channels, height, width = images.shape
        best = (images + epsilon * _signs(count, channels, 1, width).to(images)).clamp(*wrapper.bounds)
        margin, reached = wrapper.margin(best, labels)
        active = (~reached).nonzero().squeeze(1)
        for query in range(1, min(self.queries, wrapper.remaining + 1)):
            if not len(active):
                break
            inside = _squares(len(active), height, width, self.side(query, height, width)).to(images.device)
            signs = _signs(len(active), channels, 1, 1).to(images)
            candidates = torch.where(inside, (images[active] + epsilon * signs).clamp(*wrapper.bounds), best[active])
            lower, reached = wrapper.margin(candidates, labels[active])
            better = (lower < margin[active]) | reached
            best[active[better]], margin[active[better]] = candidates[better], lower[better]
            active = active[~reached]
        return best

    def side(self, query: int, height: int, width: int) -> int:
        """Return the side of the squares at this query.

        >>> [Square(queries=10_000).side(query, 28, 28) for query in (1, 100, 9999)]
        [25, 13, 1]
        """
        halvings = sum(query * SCHEDULE_LENGTH > point * self.queries for point in HALVED_AT)
        side = math.sqrt(self.area / 2**halvings * height * width)
        return min(max(1, round(side)), height, width)


def _signs(*shape: int) -> Tensor:
    """Sample -1 or 1 for each element."""
    return torch.randint(2, shape) * 2.0 - 1.0


def _squares(count: int, height: int, width: int, side: int) -> Tensor:
    """Return masks (B, 1, H, W) of one randomly placed square per image."""
    top = torch.randint(height - side + 1, (count, 1))
    left = torch.randint(width - side + 1, (count, 1))
    rows, columns = torch.arange(height), torch.arange(width)
    in_rows = (rows >= top) & (rows < top + side)  # (B, H)
    in_columns = (columns >= left) & (columns < left + side)  # (B, W)
    return (in_rows.unsqueeze(2) & in_columns.unsqueeze(1)).unsqueeze(1)


attacks.add(AttackRecord("square", "random squares, by scores alone", "Andriushchenko 2020", Square, white_box=False))
