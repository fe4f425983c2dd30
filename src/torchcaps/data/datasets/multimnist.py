"""MultiMNIST: two overlaid digits of different classes, 36x36, generated on the fly.

sabour2017, section 6; gu2021, section 3.2: each digit is shifted by up to 4 pixels on a 36x36 canvas and overlaid
(sum, clipped) with one of another class from the same split. Image k is a pure function of (seed, k), so the dataset
is random-access, resumable and shardable. Each digit is the first of 1,000 training images: 60 million in total.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.data.base import Batch, ImageSet, Subset, TensorImages, as_floats
from torchcaps.data.counter_rng import integers
from torchcaps.data.datasets.mnist import CITATION, DIGITS, FILES, LICENCE, SOURCES, open_mnist
from torchcaps.data.registry import DatasetRecord, datasets
from torchcaps.data.transforms import place
from torchcaps.errors import TorchcapsError

CANVAS = 36
PER_DIGIT = {"train": 1000, "test": 1}


class OverlaidDigits(ImageSet):
    """Overlaid pairs: image k has ``k mod N`` as its first digit; draw ``k // N`` is the second digit and both shifts.

    All combinations (second digit, shift, shift) of a first digit are numbered and divided into ``per_digit`` equal
    blocks. Each draw takes one combination from a block of its own, so no combination of a digit repeats.
    """

    def __init__(self, digits: TensorImages, seed: int, per_digit: int) -> None:
        self.digits, self.seed, self.per_digit = digits, seed, per_digit
        self.shape, self.class_names = (1, CANVAS, CANVAS), digits.class_names
        self.places = CANVAS - digits.shape[1] + 1  # per axis: 9
        self.by_class = torch.argsort(digits.labels, stable=True)
        self.sizes = torch.bincount(digits.labels, minlength=len(digits.class_names))
        self.starts = self.sizes.cumsum(0) - self.sizes
        if int((self.sizes > 0).sum()) < 2:
            raise TorchcapsError("overlaid digits need at least two classes")

    def __len__(self) -> int:
        return len(self.digits) * self.per_digit

    def draw(self, indices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the first digits (B,), the second digits (B,), and the corners (B, 2, 2): digit, (row, column)."""
        first, number = indices % len(self.digits), indices // len(self.digits)
        own = self.digits.labels[first]
        others = len(self.digits) - self.sizes[own]
        block = others * self.places**4 // self.per_digit
        rotated = (number + integers(self.seed, 0, first, self.per_digit)) % self.per_digit
        choice = rotated * block + integers(self.seed, 1, indices, block)
        corners = torch.stack([choice // self.places**axis % self.places for axis in range(4)], dim=1)
        rank = choice // self.places**4  # among the digits of other classes: skip the first digit's class
        second = self.by_class[rank + self.sizes[own] * (rank >= self.starts[own])]
        return first, second, corners.reshape(-1, 2, 2)

    def batch(self, indices: Tensor) -> Batch:
        first, second, corners = self.draw(indices)
        both = torch.stack([first, second], dim=1)  # (B, 2)
        pictures = self.digits.images[both.flatten()]  # (2B, 1, 28, 28)
        targets = as_floats(place(pictures, corners.flatten(0, 1), (CANVAS, CANVAS)))
        targets = targets.reshape(-1, 2, *self.shape)
        return Batch(targets.sum(dim=1).clamp_(max=1), self.digits.labels[both], targets=targets)

    def divide(self, count: int, seed: int) -> tuple[ImageSet, ImageSet]:
        """Hold out digits, not pairs, so that no training digit appears in a validation image."""
        held = min(count, len(self.digits) // 6)
        draws = -(-count // held)
        order = torch.randperm(len(self.digits), generator=torch.Generator().manual_seed(seed))
        kept, out = self.digits.where(order[held:].sort().values), self.digits.where(order[:held].sort().values)
        rest = OverlaidDigits(kept, self.seed, self.per_digit)
        return rest, Subset(OverlaidDigits(out, self.seed, draws), torch.arange(count))


def open_multimnist(split: str, seed: int = 0) -> OverlaidDigits:
    """Open one split; both digits come from the same split of MNIST."""
    return OverlaidDigits(open_mnist(split), seed, PER_DIGIT[split])


datasets.add(
    DatasetRecord(
        name="multimnist",
        description="two overlaid digits, an endless stream made from MNIST",
        shape=(1, CANVAS, CANVAS),
        class_names=DIGITS,
        splits={"train": 60_000_000, "test": 10_000},
        licence=LICENCE,
        citation=f"Sabour, Frosst, Hinton: Dynamic routing between capsules, 2017; {CITATION}",
        open=open_multimnist,
        files=FILES,
        sources=SOURCES,
        folder="mnist",
        labels_per_image=2,
    )
)
