"""Untrusted directories in the Hub's format: no code runs, and no file outside is read."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import torchcaps
from tests.hostile.test_pickles import forms
from tests.hostile.test_sizes import claim
from torchcaps.errors import TorchcapsError
from torchcaps.pretrained.hub import MOST_BYTES

CONFIG, WEIGHTS = "config.json", "model.safetensors"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return torchcaps.save_pretrained("matrix-capsnet-mnist-laptop", tmp_path_factory.mktemp("hub") / "good")


@pytest.fixture
def folder(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "folder"))


def cached(good: Path, root: Path) -> Path:
    """The directory in the layout of the Hub's cache: links to blobs next to it."""
    snapshot = root / "models--somebody--something" / "snapshots" / "0123abcd"
    blobs = snapshot.parents[1] / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    for number, path in enumerate(sorted(good.iterdir())):
        shutil.copy(path, blobs / f"{number:064}")
        (snapshot / path.name).symlink_to(Path("../../blobs") / f"{number:064}")
    return snapshot


def test_the_folder_is_good(folder: Path) -> None:
    assert torchcaps.from_pretrained(folder).classes == 10


def test_the_links_of_the_hubs_cache_are_followed(good: Path, tmp_path: Path) -> None:
    assert torchcaps.from_pretrained(cached(good, tmp_path)).classes == 10


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_a_link_out_of_the_folder_is_refused(folder: Path, tmp_path: Path, name: str) -> None:
    shutil.move(folder / name, tmp_path / "outside")
    (folder / name).symlink_to(tmp_path / "outside")
    with pytest.raises(TorchcapsError, match="is a link out of its directory"):
        torchcaps.from_pretrained(folder)


def test_a_link_within_the_folder_is_as_good_as_the_file(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "weights")
    (folder / WEIGHTS).symlink_to("weights")
    assert torchcaps.from_pretrained(folder).classes == 10


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_a_cache_whose_links_lead_further_is_refused(good: Path, tmp_path: Path, name: str) -> None:
    """Links from the snapshot past the blobs, from a blob onward, and blobs that are themselves a link."""
    first, second, third = (cached(good, tmp_path / str(number)) for number in range(3))
    outside = Path(shutil.copytree(good, tmp_path / "outside"))
    (first / name).unlink()
    (first / name).symlink_to(outside / name)
    blob = second.parents[1] / "blobs" / (second / name).readlink().name
    blob.unlink()
    blob.symlink_to(outside / name)
    blobs = third.parents[1] / "blobs"
    blobs.rename(tmp_path / "moved")
    blobs.symlink_to(tmp_path / "moved")
    for snapshot in (first, second, third):
        with pytest.raises(TorchcapsError, match="is a link out of its directory"):
            torchcaps.from_pretrained(snapshot)


def test_a_folder_that_only_looks_like_a_snapshot_has_no_rights(good: Path, tmp_path: Path) -> None:
    snapshot = cached(good, tmp_path)
    renamed = snapshot.parents[1].rename(tmp_path / "something")  # no repository of the cache
    with pytest.raises(TorchcapsError, match="is a link out of its directory"):
        torchcaps.from_pretrained(renamed / "snapshots" / snapshot.name)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_paths_that_are_not_files(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)  # reading it would wait for ever
    with pytest.raises(TorchcapsError, match="is not a file"):
        torchcaps.from_pretrained(folder)
    (folder / name).unlink()
    (folder / name).symlink_to(name)  # to itself
    with pytest.raises(TorchcapsError, match=f"has no {name}"):
        torchcaps.from_pretrained(folder)


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_a_file_of_unbounded_size(folder: Path, name: str) -> None:
    with (folder / name).open("r+b") as file:
        file.truncate(MOST_BYTES[name] + 1)  # a hole: it takes no space on the disk
    with pytest.raises(TorchcapsError, match=r"bytes, more than the .* that are allowed"):
        torchcaps.from_pretrained(folder)


@pytest.mark.parametrize("form", ["plain", "torch", "old", "hidden"])
@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
def test_a_pickle_is_never_run(folder: Path, tmp_path: Path, name: str, form: str) -> None:
    content = forms(tmp_path / "ran")[form]
    (folder / name).write_bytes(content)
    for other in ("pytorch_model.bin", "model.pt", "modeling.py", "model.pkl"):
        (folder / other).write_bytes(content)
    with pytest.raises(TorchcapsError):
        torchcaps.from_pretrained(folder)
    assert not (tmp_path / "ran").exists()


Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda config: config.pop("library_name"), "does not describe a torchcaps model"),
        (lambda config: config.update(library_name="transformers"), "does not describe a torchcaps model"),
        (lambda config: config.update(auto_map={"AutoModel": "evil.py"}), "setting 'auto_map' is unknown"),
        (lambda config: config.update(model="../../evil"), r"model '\.\./\.\./evil' is unknown"),
        (lambda config: config.update(model=["capsnet"]), "setting 'model' is"),
        (lambda config: config.update(options={"filters": 10**9}), "bytes of weights|cannot be built"),
        (lambda config: config.update(image_shape=[1, 10**9, 10**9]), "bytes of weights|cannot be built"),
        (lambda config: config.update(class_names=["a"]), "setting 'class_names' is"),
        (lambda config: config.update(options={"__class__": "x"}), "'__class__' is unknown"),
    ],
)
def test_settings_are_checked_one_by_one(folder: Path, change: Change, message: str) -> None:
    config = json.loads((folder / CONFIG).read_text())
    change(config)
    (folder / CONFIG).write_text(json.dumps(config))
    with pytest.raises(TorchcapsError, match=message) as caught:
        torchcaps.from_pretrained(folder)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("content", ["[]", "null", "7", "{", '{"a":' * 100_000])
def test_a_config_that_is_no_mapping(folder: Path, content: str) -> None:
    (folder / CONFIG).write_text(content)
    with pytest.raises(TorchcapsError):
        torchcaps.from_pretrained(folder)


def test_weights_that_do_not_fit(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    name = next(iter(tensors))
    for wrong in ({**tensors, "more": torch.zeros(2)}, {**tensors, name: torch.zeros(1)}):
        save_file(wrong, folder / WEIGHTS)
        with pytest.raises(TorchcapsError, match="does not fit this model"):
            torchcaps.from_pretrained(folder)
    claim(folder / WEIGHTS, {each: [1 << 38] for each in tensors}, sparse=False)
    with pytest.raises(TorchcapsError, match="damaged or truncated"):
        torchcaps.from_pretrained(folder)
    save_file({**tensors, name: torch.full_like(tensors[name], torch.nan)}, folder / WEIGHTS)
    with pytest.raises(TorchcapsError, match="NaN or infinite values"):
        torchcaps.from_pretrained(folder)
