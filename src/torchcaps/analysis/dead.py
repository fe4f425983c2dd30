"""Dead capsules: types that no image of a set brings to life.

A capsule's presence is its activation, or its length where it has none. Over all images and places of a set, a type is

- ``silent`` if its presence never reaches a hundredth of the greatest presence in its layer, and
- ``never_first`` if at no place of any image it is the most present type: a class capsule that never wins.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.analysis.inspection import inspect_layers, presence
from torchcaps.models import Model
from torchcaps.progress import Advance

SILENT = 0.01
AT_ONCE = 10  # images: looking into a layer stores all its votes


@dataclass(frozen=True)
class Liveliness:
    """One layer of capsule types.

    Shapes: ``greatest`` (N,), each type's greatest presence; ``first`` (N,), the share of places and images at which it
    is the most present one.
    """

    name: str
    greatest: Tensor
    first: Tensor

    @property
    def silent(self) -> list[int]:
        """Types that never reach a hundredth of the layer's greatest presence."""
        return torch.nonzero(self.greatest < SILENT * self.greatest.max()).flatten().tolist()

    @property
    def never_first(self) -> list[int]:
        """Types that are nowhere the most present one."""
        return torch.nonzero(self.first == 0).flatten().tolist()


def measure_liveliness(model: Model, images: Tensor, *, advance: Advance = lambda amount: None) -> list[Liveliness]:
    """The primary capsules and every layer above, over the images (B, C, H, W)."""
    greatest: dict[str, Tensor] = {}
    wins: dict[str, Tensor] = {}
    for part in images.split(AT_ONCE):
        _, layers = inspect_layers(model, part)
        groups = {"primary": layers[0].children} | {layer.name: layer.parents for layer in layers}
        for name, capsules in groups.items():
            present = presence(capsules).flatten(0, 2)  # (B*H*W, N)
            peak = present.amax(0)
            count = torch.bincount(present.argmax(1), minlength=present.shape[1])
            greatest[name] = torch.maximum(greatest.get(name, peak), peak)
            wins[name] = wins.get(name, torch.zeros_like(count)) + count
        advance(len(part))
    return [Liveliness(name, greatest[name], wins[name] / wins[name].sum()) for name in greatest]
