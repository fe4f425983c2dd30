"""Datasets: one file each, a registry of their records, and the sources of their bytes."""

from torchcaps.data import glyphs, mnist  # noqa: F401  (each registers its dataset)
from torchcaps.data.base import Batch, DatasetRecord, ImageSet, MemoryImages, Subset, datasets, split_off
from torchcaps.data.sources import cache_folder, obtain
from torchcaps.data.transforms import Augmentation
from torchcaps.errors import unknown_name

__all__ = [
    "Augmentation",
    "Batch",
    "DatasetRecord",
    "ImageSet",
    "MemoryImages",
    "Subset",
    "datasets",
    "load_dataset",
    "split_off",
]


def load_dataset(name: str, split: str = "train") -> ImageSet:
    """Open one split of a dataset by name; files that are missing are fetched and verified first.

    >>> len(load_dataset("glyphs", "test"))
    1000
    """
    record = datasets.get(name)
    if split not in record.splits:
        raise unknown_name(f"split of {name}", split, record.splits)
    folder = obtain(name, record.files, record.sources) if record.files else cache_folder()
    return record.open(split, folder)
