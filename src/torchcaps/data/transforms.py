"""Random changes of training images, a whole batch at a time.

An augmentation is written as text, ``"shift=2"`` or ``"shift=2,flip=0.5"``, so that a run's settings hold it.
Each draws from a generator that the caller seeds: the same generator state gives the same images.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from torchcaps.errors import TorchcapsError, unknown_name

Change = Callable[[Tensor, float, Generator], Tensor]


def shift(images: Tensor, pixels: float, generator: Generator) -> Tensor:
    """Move each image by up to ``pixels`` whole pixels along both axes; what comes in is black."""
    reach = int(pixels)
    count, _, height, width = images.shape
    offset = torch.randint(0, 2 * reach + 1, (2, count), generator=generator)
    padded = F.pad(images, (reach, reach, reach, reach))
    rows = offset[0, :, None] + torch.arange(height)  # (B, H)
    columns = offset[1, :, None] + torch.arange(width)  # (B, W)
    batch = torch.arange(count)[:, None, None]
    return padded.permute(0, 2, 3, 1)[batch, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


CHANGES: dict[str, Change] = {"shift": shift}


class Augmentation:
    """Random changes applied one after the other.

    >>> Augmentation("shift=2")(torch.ones(3, 1, 28, 28), Generator().manual_seed(0)).shape
    torch.Size([3, 1, 28, 28])
    """

    def __init__(self, text: str) -> None:
        self.steps: list[tuple[Change, float]] = []
        for part in filter(None, (piece.strip() for piece in text.split(","))):
            name, _, amount = part.partition("=")
            if name not in CHANGES:
                raise unknown_name("augmentation", name, CHANGES)
            try:
                self.steps.append((CHANGES[name], float(amount)))
            except ValueError:
                raise TorchcapsError(f"augmentation '{part}' should be written {name}=NUMBER") from None

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        for change, amount in self.steps:
            images = change(images, amount, generator)
        return images
