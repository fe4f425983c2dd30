"""What flows between capsule layers."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Capsules(NamedTuple):
    """Capsules on a grid.

    Shapes: ``pose`` (B, H, W, N, D) for N capsule types; ``activation`` (B, H, W, N), or None where the length
    of the pose tells how present a capsule is. A fully connected layer's output has H = W = 1.
    """

    pose: Tensor
    activation: Tensor | None = None
