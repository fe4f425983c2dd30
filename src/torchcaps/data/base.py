"""What every dataset gives: batches by index, and a record that says what it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.data.io.download import File, Source
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

    def divide(self, count: int, seed: int) -> tuple[ImageSet, ImageSet]:
        """Two sets that share no image, the second with ``count`` images drawn by the seed; see ``split_off``."""
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        return Subset(self, order[count:]), Subset(self, order[:count])


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
        if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(class_names):
            found = f"{int(labels.min())} to {int(labels.max())}"
            raise TorchcapsError(f"labels run from {found}, but there are {len(class_names)} classes, counted from 0")
        self.images, self.labels, self.factors = images, labels.long(), factors or {}
        self.shape = (images.shape[1], images.shape[2], images.shape[3])
        self.class_names = class_names

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor) -> Batch:
        images = as_floats(self.images.index_select(0, indices))
        factors = {name: values[indices] for name, values in self.factors.items()}
        return Batch(images, self.labels[indices], factors=factors)

    def where(self, chosen: Tensor) -> MemoryImages:
        """The images that a mask (N,) or a list of positions chooses."""
        factors = {name: values[chosen] for name, values in self.factors.items()}
        return MemoryImages(self.images[chosen], self.labels[chosen], self.class_names, factors)


def as_floats(images: Tensor) -> Tensor:
    """Bytes to float32 in [0, 1]."""
    return images.to(torch.float32).div_(255)


def pieces(count: int, size: int) -> Iterator[slice]:
    """Slices that go through ``count`` things, at most ``size`` at a time."""
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


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
    open: Callable[[str], ImageSet]  # by the split's name; fetches or generates what is missing
    files: tuple[File, ...] = ()  # none: the set is generated
    sources: tuple[Source, ...] = ()
    folder: str = ""  # where the files lie, if another dataset has brought them; else the name
    by_hand: str = ""  # "folder/file" that a user must put in place, since no checksum of it was published
    augmentation: str = ""  # the usual one for training, see transforms.py
    labels_per_image: int = 1
    digests: dict[str, str] = field(default_factory=dict)  # of images that may change, see own_images.py
    crop: int | None = None  # models see images cropped to this size: at random in training, else the centre

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of what a model sees."""
        channels, height, width = self.shape
        return (channels, self.crop or height, self.crop or width)


class DatasetRegistry(Registry[DatasetRecord]):
    """Datasets by name; ``images:FOLDER`` is a name too, and its record is made when it is asked for."""

    def __init__(self) -> None:
        super().__init__("dataset")
        self.families: dict[str, Callable[[str], DatasetRecord]] = {}

    def get(self, name: str) -> DatasetRecord:
        family, _, rest = name.partition(":")
        if family in self.families:
            if not rest:
                raise TorchcapsError(f"dataset '{family}' needs a folder: write {family}:FOLDER")
            return self.families[family](rest)
        if name not in self and Path(name).is_dir():
            raise TorchcapsError(f"'{name}' is a folder, not a dataset's name: write images:{name} for its pictures")
        return super().get(name)


datasets = DatasetRegistry()


def split_off(whole: ImageSet, count: int, seed: int) -> tuple[ImageSet, ImageSet]:
    """Divide a set at random in two, the second with ``count`` images: a pure function of the seed.

    This is how the validation images are taken from the training split. The test split never takes part.
    """
    if not 0 < count < len(whole):
        raise TorchcapsError(f"cannot split {count} images off a set of {len(whole)}: some must be left on both sides")
    return whole.divide(count, seed)
