"""files.py: atomic writes, bounded reads, and no leftover files."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from torchcaps.data.io.download import SCRATCH, SCRATCH_SECONDS, remove_old_scratch
from torchcaps.errors import TorchcapsError
from torchcaps.files import atomic_path, read_text, remove_unfinished


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / ".last.safetensors.1234abcd.tmp"
    kept = [tmp_path / "last.safetensors", tmp_path / "mine.tmp", tmp_path / ".hidden"]
    for path in (left, *kept):
        path.touch()
    remove_unfinished(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(kept)
    remove_unfinished(tmp_path / "missing")


def test_the_name_of_an_unfinished_file_is_one_that_is_removed(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "file") as temporary:
        temporary.touch()
        remove_unfinished(tmp_path)
        assert not temporary.exists()
        temporary.touch()
    assert (tmp_path / "file").exists()


def test_old_scratch_is_removed_and_young_is_not(tmp_path: Path) -> None:
    old, young = tmp_path / f"{SCRATCH}old", tmp_path / f"{SCRATCH}young"
    for folder in (old, young):
        folder.mkdir()
        (folder / "half").touch()
    then = time.time() - SCRATCH_SECONDS - 60
    os.utime(old, (then, then))
    remove_old_scratch(tmp_path)
    assert list(tmp_path.iterdir()) == [young]


def test_a_text_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("ähm".encode())
    assert read_text(path, most=4) == "ähm"
    with pytest.raises(TorchcapsError, match="holds more than 3 bytes"):
        read_text(path, most=3)
    path.write_bytes(b"\xff")
    with pytest.raises(TorchcapsError, match="cannot be read"):
        read_text(path)
    assert read_text(path, damaged="replace") == "\ufffd"
    with pytest.raises(TorchcapsError, match="cannot be read"):
        read_text(tmp_path / "missing")
