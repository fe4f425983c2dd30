"""Which datasets are here, where they lie, and whether they are intact."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torchcaps.data.base import DatasetRecord
from torchcaps.data.io.download import data_cache, data_folders, find_by_hand, locate, obtain, problem_in

HERE, TO_FETCH, GENERATED, BY_HAND = "here", "to fetch", "generated", "by hand"


@dataclass(frozen=True)
class Stock:
    """What there is of a dataset: its state, the folder of its files if they are here, and their bytes on disk."""

    state: str
    folder: Path | None
    size: int


def take_stock(record: DatasetRecord) -> Stock:
    """Look for a dataset's files, without reading them; ``verify`` reads them."""
    if not record.files:
        return Stock(GENERATED, None, 0)
    if record.by_hand and not find_by_hand(record.by_hand):
        return Stock(BY_HAND, None, 0)
    for folder in data_folders(record.folder or record.name):
        paths = [path for file in record.files if (path := locate(folder, file.name))]
        if len(paths) == len(record.files):
            return Stock(HERE, folder, sum(path.stat().st_size for path in paths))
    return Stock(TO_FETCH if record.sources else BY_HAND, None, 0)


def fetch(record: DatasetRecord) -> Path:
    """Make sure that everything a dataset needs is here: files fetched and verified, pictures drawn."""
    if record.by_hand:
        record.open("test")  # says where to put it
    if record.files:
        return obtain(record.folder or record.name, record.files, record.sources)
    for split in record.splits:
        record.open(split)
    return data_cache()


def problems_with(record: DatasetRecord) -> list[str]:
    """What is wrong with the files that are here, one sentence each; nothing for a set without files."""
    stock = take_stock(record)
    if stock.folder is None:
        return [f"{record.name} is {stock.state}: see 'torchcaps data get {record.name}'"] if record.files else []
    return [f"{stock.folder}: {problem}" for file in record.files if (problem := problem_in(stock.folder, file))]
