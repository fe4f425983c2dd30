"""Square: random squares, kept where the score says they help. Sees scores only, never a gradient.

Andriushchenko, Croce, Flammarion, Hein: Square Attack, 2020, https://arxiv.org/abs/1912.00049, algorithms 1 and 2.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchcaps.attacks.base import Attack, AttackRecord, attacks
from torchcaps.attacks.model_wrapper import ModelWrapper
from torchcaps.errors import TorchcapsError

# Where in the course of the queries the squares' area is halved (the paper's section 5, of 10,000 queries).
HALVED_AT = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)
OF = 10_000


class Square(Attack):
    """Every pixel at plus or minus epsilon, first in stripes, then changed square by square.

    Args:
        norm: ``linf`` only.
        queries: how often the model is asked about an image.
        area: share of the image that the first squares cover.
    """

    norms = ("linf",)
    all_views = False

    def __init__(self, *, norm: str = "linf", queries: int = 1000, area: float = 0.8) -> None:
        super().__init__(norm=norm)
        if queries < 1 or not 0 < area <= 1:
            raise TorchcapsError(
                f"square needs at least 1 query and an area above 0 and up to 1, got {queries} queries and {area}"
            )
        self.queries, self.area = queries, area

    def perturb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        count, channels, height, width = images.shape
        best = (images + epsilon * _signs(count, channels, 1, width).to(images)).clamp(0, 1)
        margin, reached = wrapper.margin(best, labels)
        live = (~reached).nonzero().squeeze(1)
        for query in range(1, min(self.queries, wrapper.left + 1)):
            if not len(live):
                break
            inside = _squares(len(live), height, width, self.side(query, height, width)).to(images.device)
            signs = _signs(len(live), channels, 1, 1).to(images)
            tried = torch.where(inside, (images[live] + epsilon * signs).clamp(0, 1), best[live])
            found, reached = wrapper.margin(tried, labels[live])
            better = (found < margin[live]) | reached
            best[live[better]], margin[live[better]] = tried[better], found[better]
            live = live[~reached]
        return best

    def side(self, query: int, height: int, width: int) -> int:
        """Side of the squares at this query.

        >>> [Square(queries=10_000).side(query, 28, 28) for query in (1, 100, 9999)]
        [25, 13, 1]
        """
        halvings = sum(query * OF > point * self.queries for point in HALVED_AT)
        wanted = math.sqrt(self.area / 2**halvings * height * width)
        return min(max(1, round(wanted)), height, width)


def _signs(*shape: int) -> Tensor:
    return torch.randint(2, shape) * 2.0 - 1.0


def _squares(count: int, height: int, width: int, side: int) -> Tensor:
    """A square in each image, placed at random: a mask (B, 1, H, W)."""
    top = torch.randint(height - side + 1, (count, 1))
    left = torch.randint(width - side + 1, (count, 1))
    rows, columns = torch.arange(height), torch.arange(width)
    in_rows = (rows >= top) & (rows < top + side)  # (B, H)
    in_columns = (columns >= left) & (columns < left + side)  # (B, W)
    return (in_rows.unsqueeze(2) & in_columns.unsqueeze(1)).unsqueeze(1)


attacks.add(
    AttackRecord(
        "square", "random squares, by scores alone", "Andriushchenko 2020", Square, norms=("linf",), white_box=False
    )
)
