"""What every dataset gives: batches by index, and a record that says what it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.data.sources import File, Source
from torchcaps.errors import TorchcapsError
from torchcaps.registry import Registry


@dataclass(frozen=True)
class Batch:
    """Images with what is known about them.

    Shapes: ``images`` (B, C, H, W) float32 in [0, 1]; ``labels`` (B,) or, with L digits in one image, (B, L);
    ``targets`` (B, L, C, H, W), what a decoder should draw for each label, or None where that is the image
    itself; ``factors`` (B,) each, named: azimuth, rotation, ...
    """

    images: Tensor
    labels: Tensor
    targets: Tensor | None = None
    factors: dict[str, Tensor] = field(default_factory=dict)


class ImageSet(ABC):
    """Labelled images, read many at a time: item by item through Python is too slow."""

    shape: tuple[int, int, int]  # channels, height, width
    class_names: tuple[str, ...]

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batch(self, indices: Tensor) -> Batch:
        """The images at these positions, in this order."""


class MemoryImages(ImageSet):
    """A whole set in memory as bytes; floats are made per batch."""

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        class_names: tuple[str, ...],
        factors: dict[str, Tensor] | None = None,
    ) -> None:
        if images.dtype != torch.uint8 or images.ndim != 4:
            raise TorchcapsError(f"images must be bytes (N, C, H, W), got {images.dtype} {tuple(images.shape)}")
        if len(labels) != len(images):
            raise TorchcapsError(f"there are {len(images)} images but {len(labels)} labels: they must go in pairs")
        self.images, self.labels, self.factors = images, labels.long(), factors or {}
        self.shape = (images.shape[1], images.shape[2], images.shape[3])
        self.class_names = class_names

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor) -> Batch:
        images = self.images[indices].to(torch.float32).div_(255)
        factors = {name: values[indices] for name, values in self.factors.items()}
        return Batch(images, self.labels[indices], factors=factors)


class Subset(ImageSet):
    """Some images of another set, in a given order."""

    def __init__(self, whole: ImageSet, indices: Tensor) -> None:
        self.whole, self.indices = whole, indices
        self.shape, self.class_names = whole.shape, whole.class_names

    def __len__(self) -> int:
        return len(self.indices)

    def batch(self, indices: Tensor) -> Batch:
        return self.whole.batch(self.indices[indices])


@dataclass(frozen=True)
class DatasetRecord:
    """What a dataset is, where it comes from, and how to open a split of it."""

    name: str
    description: str
    shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    splits: dict[str, int]  # images per split
    licence: str
    citation: str
    open: Callable[[str, Path], ImageSet]  # split and the folder with the verified files
    files: tuple[File, ...] = ()  # none: the set is generated
    sources: tuple[Source, ...] = ()
    augmentation: str = ""  # the usual one for training, see transforms.py


datasets: Registry[DatasetRecord] = Registry("dataset")


def split_off(whole: ImageSet, count: int, seed: int) -> tuple[Subset, Subset]:
    """Divide a set at random in two, the second with ``count`` images: a pure function of the seed.

    This is how the validation images are taken from the training split. The test split never takes part.
    """
    if not 0 < count < len(whole):
        raise TorchcapsError(f"cannot split {count} images off a set of {len(whole)}: some must be left on both sides")
    order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))
    return Subset(whole, order[count:]), Subset(whole, order[:count])
