"""Files of a dataset: found, verified, and fetched where they are missing.

A file is looked for in ``$TORCHCAPS_DATA/<dataset>``, then in the user's cache; else it is fetched from the
dataset's sources (sources.py), one after the other. Whatever the source, the same checksum of the unpacked content
decides, so a package that was compressed anew is as good as the original and a wrong file is refused.
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
SCRATCH_SECONDS = 24 * 3600  # no fetch takes so long


@dataclass(frozen=True)
class File:
    """One original file. ``size`` and ``checksum`` ("algorithm:hex") are those of its unpacked content.

    A file whose name ends in ``.gz`` may also lie there unpacked, without that ending.
    """

    name: str
    size: int
    checksum: str
    packed: str = ""  # the checksum of the .gz file itself, where that one was published


class Source(Protocol):
    """A place that may have files."""

    @property
    def label(self) -> str: ...

    def fetch(self, files: Sequence[File], folder: Path) -> None:
        """Put what it has into ``folder`` under the files' names; raise OSError or TorchcapsError if it cannot."""


def data_cache() -> Path:
    """The user's cache for datasets."""
    return cache_folder() / "data"


def data_folders(dataset: str) -> list[Path]:
    """Where files of this dataset may lie, in the order they are looked for."""
    own = os.environ.get("TORCHCAPS_DATA")
    return [*([Path(own) / dataset] if own else []), data_cache() / dataset]


def find_manual_file(name: str) -> Path | None:
    """A file "folder/name" that a user has put into one of the data folders, or None."""
    folder, _, file = name.partition("/")
    return next((path / file for path in data_folders(folder) if (path / file).is_file()), None)


def locate_file(folder: Path, name: str) -> Path | None:
    """The file in a folder, packed or unpacked, or None."""
    candidates = (folder / name, folder / name.removesuffix(".gz"))
    return next((path for path in candidates if path.is_file()), None)


def unpacked(path: Path) -> Iterator[bytes]:
    """The content of a file in chunks, through gzip where the name says so."""
    with open_unpacked(path) as stream:
        while chunk := stream.read(CHUNK):
            yield chunk


def check_file(path: Path, file: File) -> str | None:
    """None if the file is the right one, else one sentence that says what is wrong."""
    algorithm, expected = file.checksum.split(":")
    digest, size = hashlib.new(algorithm, usedforsecurity=False), 0
    try:
        if file.packed and path.suffix == ".gz" and file.packed == file_digest(path, file.packed.split(":")[0]):
            return None
        for chunk in unpacked(path):
            digest.update(chunk)
            size += len(chunk)
            if size > file.size:  # stop early: a hostile gzip may unpack to terabytes
                return f"{path.name} holds more than the expected {file.size} bytes"
    except (OSError, EOFError, zlib.error) as error:
        return f"{path.name} cannot be unpacked: {error}"
    if size < file.size:
        return f"{path.name} is cut short: {size} bytes of {file.size}"
    if digest.hexdigest() != expected:
        return f"{path.name} is not the original: expected {algorithm} {expected}, found {digest.hexdigest()}"
    return None


def file_digest(path: Path, algorithm: str) -> str:
    """The checksum of a file as it lies there, as "algorithm:hex"."""
    with path.open("rb") as stream:
        return f"{algorithm}:{hashlib.file_digest(stream, algorithm).hexdigest()}"


def check_file_in(folder: Path, file: File) -> str | None:
    """None if the folder has the right file, else what is wrong with it or that it is missing."""
    path = locate_file(folder, file.name)
    return f"{file.name} is missing" if path is None else check_file(path, file)


def find_files(dataset: str, files: Sequence[File]) -> Path | None:
    """The first folder that holds all files intact, or None. Files that are there but wrong are named."""
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
    """The folder with the needed files (else all), verified; what is missing is fetched into the cache first.

    When something has to be fetched, all files are: most sources have them in one package.
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
    """Remove what fetches that were killed have left; a young folder may be in use by another process."""
    for path in folder.glob(f"{SCRATCH}*"):
        if time.time() - path.stat().st_mtime > SCRATCH_SECONDS:
            shutil.rmtree(path, ignore_errors=True)


def _download_from(source: Source, missing: list[File], target: Path, tried: list[str]) -> list[File]:
    """Fetch into a folder of our own, so that two processes never share one; keep what is verified."""
    left = []
    with tempfile.TemporaryDirectory(dir=target, prefix=SCRATCH) as scratch:
        try:
            source.fetch(missing, Path(scratch))
        except Exception as error:  # an archive from elsewhere fails in many ways: lzma, encryption, bad numbers
            tried.append(f"{source.label} ({error})")
        for file in missing:
            fetched = Path(scratch) / file.name
            if not fetched.is_file():
                left.append(file)
            elif problem := check_file(fetched, file):
                log.warning("refused a file from %s: %s", source.label, problem)
                tried.append(f"{source.label} ({problem})")
                left.append(file)
            else:
                with atomic_path(target / file.name) as temporary:
                    fetched.replace(temporary)
    return left
