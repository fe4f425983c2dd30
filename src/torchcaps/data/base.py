"""Image sets: labeled images that are read a whole batch at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import IterableDataset

from torchcaps.environment import machine_memory
from torchcaps.errors import TorchcapsError
from torchcaps.progress import progress_bar


@dataclass(frozen=True)
class Batch:
    """A batch of images with their labels.

    Shapes: ``images`` (B, C, H, W) float32 in [0, 1]; ``labels`` (B,), or (B, L) with L digits per image; ``targets``
    (B, L, C, H, W), the reconstruction target of each label, or None where that is the image itself; ``factors`` (B,)
    each, by name: azimuth, rotation, ...
    """

    images: Tensor
    labels: Tensor
    targets: Tensor | None = None
    factors: dict[str, Tensor] = field(default_factory=dict)


class ImageSet(ABC):
    """Labeled images of one shape, read by the batch: indexing single images in Python would be too slow."""

    shape: tuple[int, int, int]  # channels, height, width
    class_names: tuple[str, ...]

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def batch(self, indices: Tensor) -> Batch:
        """Return the images at these indices, in this order."""

    def divide(self, count: int, seed: int) -> tuple[ImageSet, ImageSet]:
        """Split at random into two disjoint sets, the second with ``count`` images; see :func:`split_off`."""
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        return Subset(self, order[count:]), Subset(self, order[:count])

    @staticmethod
    def from_dataset(dataset: Any, *, class_names: Sequence[str] | None = None) -> TensorImages:
        """Read a map-style ``torch.utils.data.Dataset`` of (image, label) pairs into memory.

        Every item is read once and checked. An image is a tensor (C, H, W) or (H, W), a NumPy array (H, W) or
        (H, W, C), or a PIL image of mode "1", "L" or "RGB". Pixels are uint8, or floats in [0, 1]: remove
        normalization transforms, since the models standardize their input themselves. All images have the shape of
        the first one. Random transforms of the dataset are applied once, not once per epoch: use an augmentation of
        torchcaps instead. For a dataset that does not fit into memory, subclass :class:`ImageSet`.

        Args:
            dataset: anything with ``len(dataset)`` and ``dataset[index]``.
            class_names: names of the labels 0, 1, ...; by default ``dataset.classes`` as in torchvision, or the
                numbers themselves.

        >>> from torch.utils.data import TensorDataset
        >>> dataset = TensorDataset(torch.rand(6, 3, 8, 8), torch.tensor([0, 1, 2, 0, 1, 2]))
        >>> ImageSet.from_dataset(dataset, class_names=("cat", "dog", "fox")).shape
        (3, 8, 8)
        """
        indexed = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        if not indexed or isinstance(dataset, IterableDataset):
            raise TorchcapsError(
                f"expected a map-style dataset with len() and indexing, got {type(dataset).__name__}: "
                "collect the items of an iterable dataset in a list first"
            )
        if not len(dataset):
            raise TorchcapsError("the dataset is empty: at least one (image, label) pair is needed")
        first, _ = _read_item(dataset, 0)
        needed = len(dataset) * first.nbytes
        if needed > machine_memory():
            raise TorchcapsError(
                f"{len(dataset):,} images of shape {tuple(first.shape)} need {needed:,} bytes, more than this machine "
                "has: use smaller images or a subset, or subclass torchcaps.data.ImageSet"
            )
        images = first.new_empty(len(dataset), *first.shape)
        labels = torch.empty(len(dataset), dtype=torch.int64)
        with progress_bar("reading images", len(dataset)) as advance:
            for index in range(len(dataset)):
                image, labels[index] = _read_item(dataset, index)
                if image.shape != first.shape or image.dtype != first.dtype:
                    raise TorchcapsError(
                        f"image {index} is {image.dtype} {tuple(image.shape)}, but image 0 is {first.dtype} "
                        f"{tuple(first.shape)}: resize and convert all images alike"
                    )
                images[index] = image
                advance(1)
        names = class_names or getattr(dataset, "classes", None) or range(int(labels.max()) + 1)
        return TensorImages(images, labels, tuple(map(str, names)))


def _read_item(dataset: Any, index: int) -> tuple[Tensor, int]:
    """Return one image (C, H, W), uint8 or float32 in [0, 1], and its label."""
    try:
        image, label = dataset[index]
    except (TypeError, ValueError) as error:
        raise TorchcapsError(f"item {index} of the dataset is not an (image, label) pair: {error}") from error
    try:
        if isinstance(label, float) or (isinstance(label, Tensor) and label.is_floating_point()):
            raise TypeError
        number = int(label)
    except (TypeError, ValueError):
        raise TorchcapsError(f"label {index} should be an integer class index, got {label!r}") from None
    return _image_tensor(image, index), number


def _image_tensor(image: Any, index: int) -> Tensor:
    """Convert a tensor, array or PIL image to (C, H, W), uint8 or float32 in [0, 1]."""
    if isinstance(image, Image.Image):
        if image.mode not in ("1", "L", "RGB"):
            raise TorchcapsError(f"image {index} has PIL mode '{image.mode}': convert it to 'L' or 'RGB' first")
        image = np.array(image.convert("L") if image.mode == "1" else image)
    if isinstance(image, np.ndarray):
        tensor = torch.from_numpy(np.ascontiguousarray(image))
        tensor = tensor.permute(2, 0, 1) if tensor.ndim == 3 else tensor
    elif isinstance(image, Tensor):
        tensor = image.detach().cpu()
    else:
        found = type(image).__name__
        raise TorchcapsError(f"image {index} should be a tensor, a NumPy array or a PIL image, got {found}")
    tensor = tensor.unsqueeze(0) if tensor.ndim == 2 else tensor
    if tensor.ndim != 3 or not tensor.numel():
        raise TorchcapsError(f"image {index} should have the shape (C, H, W), got {tuple(tensor.shape)}")
    if tensor.dtype == torch.uint8:
        return tensor
    if not tensor.is_floating_point():
        raise TorchcapsError(f"image {index} should be uint8 or floats in [0, 1], got {tensor.dtype}")
    low, high = float(tensor.min()), float(tensor.max())
    if not 0 <= low <= high <= 1:  # NaN fails this too
        raise TorchcapsError(
            f"image {index} has values from {low:g} to {high:g}: expected floats in [0, 1], without normalization"
        )
    return tensor.float()


class TensorImages(ImageSet):
    """Images held in memory as one tensor.

    Shapes: ``images`` (N, C, H, W), uint8 or float32 in [0, 1]; ``labels`` (N,), integers from 0; ``factors`` (N,)
    each.
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        class_names: tuple[str, ...],
        factors: dict[str, Tensor] | None = None,
    ) -> None:
        if images.dtype not in (torch.uint8, torch.float32) or images.ndim != 4:
            found = f"{images.dtype} {tuple(images.shape)}"
            raise TorchcapsError(f"images must be uint8 or float32 of shape (N, C, H, W), got {found}")
        if len(labels) != len(images):
            raise TorchcapsError(f"there are {len(images)} images but {len(labels)} labels: each image needs one")
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

    def where(self, chosen: Tensor) -> TensorImages:
        """Select images by a boolean mask (N,) or by indices."""
        factors = {name: values[chosen] for name, values in self.factors.items()}
        return TensorImages(self.images[chosen], self.labels[chosen], self.class_names, factors)


class Subset(ImageSet):
    """Images of another set, selected by index."""

    def __init__(self, whole: ImageSet, indices: Tensor) -> None:
        self.whole, self.indices = whole, indices
        self.shape, self.class_names = whole.shape, whole.class_names

    def __len__(self) -> int:
        return len(self.indices)

    def batch(self, indices: Tensor) -> Batch:
        return self.whole.batch(self.indices[indices])


def split_off(whole: ImageSet, count: int, seed: int) -> tuple[ImageSet, ImageSet]:
    """Split a set at random into the rest and ``count`` images: a pure function of the seed.

    The validation images are taken from the training split in this way; the test split is never used.
    """
    if not 0 < count < len(whole):
        raise TorchcapsError(f"cannot split {count} images off a set of {len(whole)}: neither part may be empty")
    return whole.divide(count, seed)


def as_floats(images: Tensor) -> Tensor:
    """Convert uint8 images to float32 in [0, 1]; float images are returned unchanged."""
    return images if images.is_floating_point() else images.to(torch.float32).div_(255)


def chunks(count: int, size: int) -> Iterator[slice]:
    """Yield slices that cover ``range(count)``, at most ``size`` long each."""
    return (slice(start, min(start + size, count)) for start in range(0, count, size))
