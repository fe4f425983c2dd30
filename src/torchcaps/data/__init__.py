"""Datasets: one file each, a registry of their records, and the sources of their bytes."""

from torchcaps.data import turntable  # noqa: F401  (registers its datasets)
from torchcaps.data.base import Batch, DatasetRecord, ImageSet, MemoryImages, Subset, datasets, split_off
from torchcaps.data.datasets import (  # noqa: F401  (each registers its datasets)
    affnist,
    cifar10,
    fashion_mnist,
    glyphs,
    image_folder,
    mnist,
    multimnist,
    smallnorb,
)
from torchcaps.data.datasets.image_folder import open_images
from torchcaps.data.transforms import Augmentation, centre_crop, thirteen_crops
from torchcaps.errors import unknown_name

__all__ = [
    "Augmentation",
    "Batch",
    "DatasetRecord",
    "ImageSet",
    "MemoryImages",
    "Subset",
    "centre_crop",
    "datasets",
    "load_dataset",
    "open_images",
    "split_off",
    "thirteen_crops",
]


def load_dataset(name: str, split: str = "train") -> ImageSet:
    """Open one split of a dataset by name; files that are missing are fetched and verified first.

    >>> len(load_dataset("glyphs", "test"))
    1000
    """
    record = datasets.get(name)
    if split not in record.splits:
        raise unknown_name(f"split of {name}", split, record.splits)
    return record.open(split)
