"""Names and links cannot lead out of a folder, neither when reading nor when writing."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from tests.helpers import tiny_model  # noqa: F401  (registers the model)
from torchcaps.cli.main import main
from torchcaps.data.datasets import image_folder
from torchcaps.data.io import sources
from torchcaps.data.io.download import File
from torchcaps.data.io.sources import PyPIWheel, take_from_tar
from torchcaps.errors import TorchcapsError
from torchcaps.files import read_json
from torchcaps.plugins import load_plugin, loaded_plugins
from torchcaps.train import fit_run, new_run, resolve

WANTED = File("digits.bin", 20, "sha256:0")
NAMES = ["../escaped", "/tmp/torchcaps-escaped", "package/../../escaped", "package/digits.bin/../../../escaped"]


def everything_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE])
def test_a_tar_archive_leaves_nothing_but_the_wanted_file(tmp_path: Path, kind: bytes) -> None:
    packed = tmp_path / "a.tgz"
    with tarfile.open(packed, "w:gz") as archive:
        for name in [*NAMES, f"package/{WANTED.name}"]:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "/etc/passwd"
            member.size = 20 if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(bytes(20)))
    target = tmp_path / "target"
    target.mkdir()
    with packed.open("rb") as stream:
        take_from_tar(stream, "package", [WANTED], target)
    left = {f"target/{WANTED.name}"} if kind == tarfile.REGTYPE else set()
    assert everything_in(tmp_path) == {"a.tgz", "target"} | left


def test_a_tar_member_that_claims_a_terabyte(tmp_path: Path) -> None:
    header = tarfile.TarInfo(f"package/{WANTED.name}")
    header.size = 1 << 40
    (tmp_path / "a.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 16))
    with pytest.raises(tarfile.TarError), (tmp_path / "a.tar").open("rb") as stream:
        take_from_tar(stream, "package", [WANTED], tmp_path)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1 << 20


def test_a_wheel_leaves_nothing_but_the_wanted_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in NAMES:
            archive.writestr(name, "x")
        archive.writestr(f"package/{WANTED.name}", bytes(50 << 20))  # much more than it should be
    content = packed.getvalue()

    def fetched(command: list[str], label: str, folder: Path) -> None:
        (folder / "a.whl").write_bytes(content)

    monkeypatch.setattr(sources, "run_client", fetched)
    target = tmp_path / "target"
    target.mkdir()
    package = File("a.whl", len(content), f"sha256:{hashlib.sha256(content).hexdigest()}")
    PyPIWheel("a", "package", package).fetch([WANTED], target)
    assert everything_in(tmp_path) == {"target", "target/a.whl", f"target/{WANTED.name}"}
    assert (target / WANTED.name).stat().st_size <= WANTED.size + (1 << 20)


def test_pictures_outside_the_folder_are_not_read(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    for name in ("bird", "cat"):
        (root / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (9, 9)).save(root / name / f"{number}.png")
    Image.new("RGB", (9, 9)).save(outside / "secret.png")
    (root / "cat" / "link.png").symlink_to(outside / "secret.png")
    (root / "dog").symlink_to(outside)
    (root / "cat" / "device.png").symlink_to("/dev/zero")
    (root / "cat" / "loop.png").symlink_to("loop.png")
    os.mkfifo(root / "cat" / "pipe.png")  # reading it would wait for ever
    found = image_folder.open_images(root, size=8)
    assert found.train.class_names == ("bird", "cat")
    assert len(found.skipped) == 5
    with pytest.raises(TorchcapsError, match="5 of 11 pictures cannot be used"):
        image_folder.open_images(root, size=8, strict=True)


@pytest.mark.parametrize("path", ["../outside/secret.png", "/etc/passwd", "a/../../outside/secret.png"])
def test_a_table_cannot_name_pictures_outside(tmp_path: Path, path: str) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").mkdir()
    Image.new("RGB", (9, 9)).save(tmp_path / "outside" / "secret.png")
    table = tmp_path / "root" / "table.csv"
    table.write_text(f"path,label\n{path},cat\n{path},dog\n")
    with pytest.raises(TorchcapsError, match="2 of 2 pictures cannot be used"):
        image_folder.open_images(table, size=8, strict=True)


def test_a_run_whose_folders_are_links_is_not_written_to(tmp_path: Path) -> None:
    run = new_run(resolve(model="tiny", data="glyphs", train_images=50, epochs=1, device="cpu"), tmp_path / "run")
    (tmp_path / "home").mkdir()
    (run.path / "checkpoints").symlink_to(tmp_path / "home")
    with pytest.raises(TorchcapsError, match="leads out of the run directory"):
        fit_run(run)
    assert everything_in(tmp_path / "home") == set()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained run."""
    settings = {
        "model": "capsnet",
        "data": "glyphs",
        "device": "cpu",
        "train_images": 60,
        "test_images": 20,
        "steps": 1,
    }
    config = resolve(**settings, options={"filters": 8, "types": 2, "hidden": [16, 16]})
    run = new_run(config, tmp_path_factory.mktemp("trained") / "run")
    fit_run(run)
    return run.path


WRITERS = {
    "explain": ["explain", "RUN", "0", "--only", "dead"],
    "evaluation": ["evaluate", "RUN", "--on", "affnist", "--test-images", "4"],
    "checkpoints": ["train", "--resume", "RUN"],
    "tensorboard": ["train", "--resume", "RUN"],
}


@pytest.mark.parametrize("name", WRITERS)
def test_no_command_writes_through_a_link_in_a_run(
    name: str, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained, tmp_path / "real", ignore=shutil.ignore_patterns("tensorboard"))
    (tmp_path / "home").mkdir()
    if name == "checkpoints":
        (tmp_path / "real" / name).rename(tmp_path / "home" / name)
    (tmp_path / "real" / name).symlink_to(tmp_path / "home" / (name if name == "checkpoints" else ""))
    before = everything_in(tmp_path / "home")
    run = str(tmp_path / "run")
    Path(run).symlink_to("real")  # which is allowed: the user named this one
    monkeypatch.setattr(
        sys, "argv", ["torchcaps", *(str(tmp_path / "run") if a == "RUN" else a for a in WRITERS[name])]
    )
    with pytest.raises(SystemExit) as stopped:
        main()
    assert everything_in(tmp_path / "home") == before
    assert stopped.value.code == 2
    assert f"{name} leads out of the run directory" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("command", ["explain", "evaluation", "export", "clean"])
def test_links_that_are_files_are_replaced_by_every_command(
    command: str, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is opened through a link is written like any other."""
    shutil.copytree(trained, tmp_path / "real")
    run = str(tmp_path / "run")
    Path(run).symlink_to("real")
    kept = tmp_path / "kept.txt"
    kept.write_text("{}")
    arguments = {**WRITERS, "export": ["export", "RUN", "--to", "torch"], "clean": ["evaluate", "RUN"]}[command]
    for name in (
        "result.json",
        "model.pt2",
        "explain/index.html",
        "explain/explain.json",
        "evaluation/evaluation.json",
    ):
        (tmp_path / "real" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "real" / name).symlink_to(kept)
    monkeypatch.setattr(sys, "argv", ["torchcaps", *(run if each == "RUN" else each for each in arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 0
    assert kept.read_text() == "{}"


def test_files_that_are_links_are_replaced_and_not_followed(tmp_path: Path) -> None:
    run = new_run(resolve(model="tiny", data="glyphs", train_images=50, epochs=1, device="cpu"), tmp_path / "run")
    kept = tmp_path / "kept.txt"
    kept.write_text("mine")
    (run.path / "checkpoints").mkdir()
    for link in (run.metrics_file, run.best):
        link.symlink_to(kept)
    fit_run(run)
    assert kept.read_text() == "mine"


def test_a_pipe_in_place_of_a_file_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "result.json")
    with pytest.raises(TorchcapsError, match="is not a file"):
        read_json(tmp_path / "result.json")


def test_a_plugin_is_loaded_by_the_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python files in a run, a dataset or the working directory are not executed."""
    config = resolve(model="tiny", data="glyphs", train_images=50, epochs=1, device="cpu")
    run = new_run(config, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    before = loaded_plugins()
    for folder in (tmp_path, run.path):
        (folder / "plugin.py").write_text("open('ran', 'w')")
        (folder / "torchcaps_plugin.py").write_text("open('ran', 'w')")
    fit_run(run)
    assert not list(tmp_path.rglob("ran"))
    assert loaded_plugins() == before
    for name in ("missing.py", "run", "plugin.txt"):
        with pytest.raises(TorchcapsError, match="should be an existing Python file"):
            load_plugin(tmp_path / name)
