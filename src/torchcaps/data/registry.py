"""The registry of datasets: their records, how to open them by name, and which of their files are present."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from torchcaps.data.base import ImageSet
from torchcaps.data.io.download import (
    File,
    Source,
    check_file_in,
    data_cache,
    data_folders,
    fetch_files,
    find_manual_file,
    locate_file,
)
from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.registry import Registry

IN_MEMORY = "in-memory"  # name prefix of datasets that exist in one process only
HERE, TO_FETCH, GENERATED, BY_HAND = "here", "to fetch", "generated", "by hand"


@dataclass(frozen=True)
class DatasetRecord:
    """A dataset's description, its files, and how to open its splits."""

    name: str
    description: str
    shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    splits: dict[str, int]  # images per split
    licence: str
    citation: str
    open: Callable[[str], ImageSet]  # takes the name of a split; downloads or generates missing files
    files: tuple[File, ...] = ()  # empty for a generated dataset
    sources: tuple[Source, ...] = ()
    folder: str = ""  # folder of the files if several datasets share them; the name by default
    by_hand: str = ""  # "folder/file" that the user must provide, since no checksum of it was published
    augmentation: str = ""  # default for training, see transforms.py
    labels_per_image: int = 1
    digests: dict[str, str] = field(default_factory=dict)  # digests of images that may change, see image_folder.py
    crop: int | None = None  # size of the crops that a model sees: random in training, the center otherwise

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of a model's input."""
        channels, height, width = self.shape
        return (channels, self.crop or height, self.crop or width)


class DatasetRegistry(Registry[DatasetRecord]):
    """Datasets by name; the record of a family such as ``images:FOLDER`` is created on request."""

    def __init__(self) -> None:
        super().__init__("dataset")
        self.families: dict[str, Callable[[str], DatasetRecord]] = {}

    def get(self, name: str) -> DatasetRecord:
        family, _, rest = name.partition(":")
        if family in self.families:
            if not rest:
                raise TorchcapsError(f"dataset '{family}' needs a folder: write {family}:FOLDER")
            return self.families[family](rest)
        if name not in self:
            if Path(name).is_dir():
                raise TorchcapsError(f"'{name}' is a folder, not the name of a dataset: write images:{name}")
            if family == IN_MEMORY:
                raise TorchcapsError(
                    f"dataset '{name}' existed only in the Python process that trained on it: a command cannot open "
                    "it, so load the model and pass the images in Python"
                )
        return super().get(name)

    @contextlib.contextmanager
    def temporary(self, images: ImageSet) -> Iterator[str]:
        """Register images under a name while the block runs, in this process only; all of them are for training.

        >>> import torch
        >>> from torchcaps.data import TensorImages
        >>> images = TensorImages(torch.rand(4, 1, 8, 8), torch.tensor([0, 1, 0, 1]), ("no", "yes"))
        >>> with datasets.temporary(images) as name:
        ...     datasets.get(name).class_names
        ('no', 'yes')
        """
        name = f"{IN_MEMORY}:{next(_numbers)}"
        self.add(
            DatasetRecord(
                name=name,
                description="images given in Python",
                shape=images.shape,
                class_names=images.class_names,
                splits={"train": len(images)},
                licence="your own",
                citation="none",
                open=lambda split: images,
            )
        )
        try:
            yield name
        finally:
            del self._records[name]


_numbers = itertools.count(1)
datasets = DatasetRegistry()
"""All datasets: iterate over the records, or call ``datasets.get(name)``."""


def load_dataset(name: str, split: str = "train") -> ImageSet:
    """Open one split of a dataset by name; missing files are downloaded and verified first.

    >>> len(load_dataset("glyphs", "test"))
    1000
    """
    record = datasets.get(name)
    if split not in record.splits:
        raise unknown_name(f"split of {name}", split, record.splits)
    return record.open(split)


@dataclass(frozen=True)
class DatasetStatus:
    """Whether a dataset's files are present, the folder that holds them, and their size in bytes."""

    state: str
    folder: Path | None
    size: int


def dataset_status(record: DatasetRecord) -> DatasetStatus:
    """Look for a dataset's files without reading them; see :func:`verify_dataset`."""
    if not record.files:
        return DatasetStatus(GENERATED, None, 0)
    if record.by_hand and not find_manual_file(record.by_hand):
        return DatasetStatus(BY_HAND, None, 0)
    for folder in data_folders(record.folder or record.name):
        paths = [path for file in record.files if (path := locate_file(folder, file.name))]
        if len(paths) == len(record.files):
            return DatasetStatus(HERE, folder, sum(path.stat().st_size for path in paths))
    return DatasetStatus(TO_FETCH if record.sources else BY_HAND, None, 0)


def download_dataset(record: DatasetRecord) -> Path:
    """Download and verify a dataset's files, or generate its images; return their folder."""
    if record.by_hand:
        record.open("test")  # raises an error that says where to put the file
    if record.files:
        return fetch_files(record.folder or record.name, record.files, record.sources)
    for split in record.splits:
        record.open(split)
    return data_cache()


def verify_dataset(record: DatasetRecord) -> list[str]:
    """Compare a dataset's files with their checksums; return one sentence per problem."""
    status = dataset_status(record)
    if status.folder is None:
        return [f"{record.name} is {status.state}: see 'torchcaps data get {record.name}'"] if record.files else []
    return [f"{status.folder}: {problem}" for file in record.files if (problem := check_file_in(status.folder, file))]
