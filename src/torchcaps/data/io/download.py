"""Find, verify and download the files of datasets.

A file is looked up in ``$TORCHCAPS_DATA/<dataset>``, then in the user's cache. A missing file is downloaded from the
first of the dataset's sources (sources.py) that provides it. Every file must match the checksum of its decompressed
content, so a file that was recompressed is accepted and a wrong one is rejected.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torchcaps.data.io.formats import CHUNK, open_unpacked
from torchcaps.errors import TorchcapsError
from torchcaps.files import atomic_path, cache_folder, make_folder
from torchcaps.progress import progress_bar

log = logging.getLogger(__name__)
SCRATCH = ".fetch-"
SCRATCH_SECONDS = 24 * 3600  # longer than any download


@dataclass(frozen=True)
class File:
    """One file of a dataset. ``size`` and ``checksum`` ("algorithm:hex") are those of its decompressed content.

    A file whose name ends in ``.gz`` may also be stored decompressed, without that suffix.
    """

    name: str
    size: int
    checksum: str
    packed: str = ""  # checksum of the .gz file itself, if one was published


class Source(Protocol):
    """Where files can be downloaded from."""

    @property
    def label(self) -> str: ...

    def fetch(self, files: Sequence[File], folder: Path) -> None:
        """Download available files into ``folder`` under their names; raise OSError or TorchcapsError on failure."""


def data_cache() -> Path:
    """Return the user's cache folder for datasets."""
    return cache_folder() / "data"


def data_folders(dataset: str) -> list[Path]:
    """Return the folders that may hold files of this dataset, in search order."""
    own = os.environ.get("TORCHCAPS_DATA")
    return [*([Path(own) / dataset] if own else []), data_cache() / dataset]


def find_manual_file(name: str) -> Path | None:
    """Return the path of a file "folder/name" that the user has put into one of the data folders, or None."""
    folder, _, file = name.partition("/")
    return next((path / file for path in data_folders(folder) if (path / file).is_file()), None)


def locate_file(folder: Path, name: str) -> Path | None:
    """Return the path of a file in a folder, compressed or decompressed, or None."""
    candidates = (folder / name, folder / name.removesuffix(".gz"))
    return next((path for path in candidates if path.is_file()), None)


def unpacked(path: Path) -> Iterator[bytes]:
    """Yield the content of a file in chunks, decompressed if its name ends in .gz."""
    with open_unpacked(path) as stream:
        while chunk := stream.read(CHUNK):
            yield chunk


def check_file(path: Path, file: File) -> str | None:
    """Compare a file with its size and checksum; return None if they match, else one sentence about the problem."""
    algorithm, expected = file.checksum.split(":")
    digest, size = hashlib.new(algorithm, usedforsecurity=False), 0
    try:
        if file.packed and path.suffix == ".gz" and file.packed == file_digest(path, file.packed.split(":")[0]):
            return None
        for chunk in unpacked(path):
            digest.update(chunk)
            size += len(chunk)
            if size > file.size:  # stop early: a gzip bomb may decompress to terabytes
                return f"{path.name} holds more than the expected {file.size} bytes"
    except (OSError, EOFError, zlib.error) as error:
        return f"{path.name} cannot be decompressed: {error}"
    if size < file.size:
        return f"{path.name} is truncated: {size} bytes of {file.size}"
    if digest.hexdigest() != expected:
        return f"{path.name} is not the original: expected {algorithm} {expected}, found {digest.hexdigest()}"
    return None


def file_digest(path: Path, algorithm: str) -> str:
    """Return the checksum of a file as stored, as "algorithm:hex"."""
    with path.open("rb") as stream:
        return f"{algorithm}:{hashlib.file_digest(stream, algorithm).hexdigest()}"


def check_file_in(folder: Path, file: File) -> str | None:
    """Check that a folder holds an intact copy of a file; return None, or one sentence about the problem."""
    path = locate_file(folder, file.name)
    return f"{file.name} is missing" if path is None else check_file(path, file)


def find_files(dataset: str, files: Sequence[File]) -> Path | None:
    """Return the first folder that holds all files intact, or None; log a warning for each damaged file."""
    for folder in data_folders(dataset):
        if not all(locate_file(folder, file.name) for file in files):
            continue
        total = sum(file.size for file in files)
        problems = []
        with progress_bar(f"checking {dataset}", total, unit="bytes") as advance:
            for file in files:
                problems += [problem] if (problem := check_file_in(folder, file)) else []
                advance(file.size)
        if not problems:
            return folder
        for problem in problems:
            log.warning("ignored %s: %s", folder, problem)
    return None


def fetch_files(
    dataset: str, files: Sequence[File], sources: Sequence[Source], *, needed: Sequence[File] | None = None
) -> Path:
    """Return the folder with the ``needed`` files (default: all), verified; download missing files into the cache.

    If any file is missing, all of them are downloaded, because most sources provide them in one package.
    """
    found = find_files(dataset, files if needed is None else needed)
    if found:
        return found
    target = make_folder(data_cache() / dataset)
    remove_old_scratch(target)
    missing = [file for file in files if check_file_in(target, file)]
    tried: list[str] = []
    for source in sources:
        missing = _download_from(source, missing, target, tried)
        if not missing:
            return target
    names = ", ".join(file.name for file in missing)
    reasons = "; ".join(tried) or "no source is known"
    raise TorchcapsError(
        f"dataset '{dataset}' could not be obtained; still missing: {names}. "
        f"Tried: {reasons}. Put the files into {data_folders(dataset)[0]} and try again"
    )


def remove_old_scratch(folder: Path) -> None:
    """Remove leftovers of interrupted downloads; a recent folder may still be in use by another process."""
    for path in folder.glob(f"{SCRATCH}*"):
        if time.time() - path.stat().st_mtime > SCRATCH_SECONDS:
            shutil.rmtree(path, ignore_errors=True)


def _download_from(source: Source, missing: list[File], target: Path, tried: list[str]) -> list[File]:
    """Download into a private temporary folder, keep the verified files and return those still missing."""
    left = []
    with tempfile.TemporaryDirectory(dir=target, prefix=SCRATCH) as scratch:
        try:
            source.fetch(missing, Path(scratch))
        except Exception as error:  # a damaged archive raises many types: lzma, encryption, bad numbers
            tried.append(f"{source.label} ({error})")
        for file in missing:
            fetched = Path(scratch) / file.name
            if not fetched.is_file():
                left.append(file)
            elif problem := check_file(fetched, file):
                log.warning("rejected a file from %s: %s", source.label, problem)
                tried.append(f"{source.label} ({problem})")
                left.append(file)
            else:
                with atomic_path(target / file.name) as temporary:
                    fetched.replace(temporary)
    return left
