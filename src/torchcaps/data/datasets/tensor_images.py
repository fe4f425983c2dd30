"""Images that a program holds in memory, as a dataset with a name for as long as a block runs."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

from torch import Tensor

from torchcaps.data.base import Batch, DatasetRecord, ImageSet, datasets
from torchcaps.errors import unknown_name

FAMILY = "held"


class HeldImages(ImageSet):
    """Floats as they are, where a file's images would be bytes.

    Shapes: ``images`` (N, C, H, W) float32 in [0, 1]; ``labels`` (N,) whole numbers from 0.
    """

    def __init__(self, images: Tensor, labels: Tensor, class_names: tuple[str, ...]) -> None:
        self.images, self.labels, self.class_names = images, labels, class_names
        self.shape = (images.shape[1], images.shape[2], images.shape[3])

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor) -> Batch:
        return Batch(self.images.index_select(0, indices), self.labels[indices])


_held: dict[str, HeldImages] = {}
_numbers = itertools.count(1)


@contextlib.contextmanager
def held_dataset(images: HeldImages) -> Iterator[str]:
    """A name by which the images can be trained on while the block runs, in this process alone.

    >>> import torch
    >>> few = HeldImages(torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 0, 1]), ("no", "yes"))
    >>> with held_dataset(few) as name:
    ...     datasets.get(name).class_names
    ('no', 'yes')
    """
    key = str(next(_numbers))
    _held[key] = images
    try:
        yield f"{FAMILY}:{key}"
    finally:
        del _held[key]


def held_record(key: str) -> DatasetRecord:
    """The record of ``held:KEY``. All images are for training: whoever holds them keeps those for a test apart."""
    if key not in _held:
        raise unknown_name("set of held images", key, _held)
    images = _held[key]
    return DatasetRecord(
        name=f"{FAMILY}:{key}",
        description="images of the program that trains on them",
        shape=images.shape,
        class_names=images.class_names,
        splits={"train": len(images)},
        licence="your own",
        citation="none",
        open=lambda split: images,
    )


datasets.families[FAMILY] = held_record
