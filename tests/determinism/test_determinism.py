"""The quick form of ``python -m tests.determinism``, and that it detects a difference."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.determinism import __main__ as determinism
from torchcaps.environment import source_commit

pytestmark = pytest.mark.process


def test_the_same_command_twice_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two trainings are compared, then one of them is changed."""
    out, kept = tmp_path / "determinism.json", tmp_path / "kept"
    quick = ["--models", "capsnet", "--threads", "1", "--out", str(out)]
    train = determinism.train

    def train_and_keep(folder: Path, model: str, threads: int) -> None:
        train(folder, model, threads)
        shutil.copytree(folder, kept / folder.name)

    monkeypatch.setattr(determinism, "train", train_and_keep)
    code = determinism.main(quick)
    report = json.loads(out.read_text())
    assert report["rows"] == [{"model": "capsnet", "what": "twice on 1 threads", "promised": True, "differ": []}]
    assert code == 0
    assert report["environment"]["commit"] == source_commit()

    def train_differently(folder: Path, model: str, threads: int) -> None:
        shutil.copytree(kept / folder.name, folder)
        if folder.name.endswith("-2"):
            result = json.loads((folder / "result.json").read_text())
            (folder / "result.json").write_text(json.dumps(result | {"test_accuracy": -1.0}))
            (folder / "config.yaml").write_text("seed: 1")

    monkeypatch.setattr(determinism, "train", train_differently)
    assert determinism.main(quick) == 1
    assert json.loads(out.read_text())["rows"][0]["differ"] == ["config.yaml", "result.json"]


def test_a_failed_training_is_counted_and_the_others_continue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "determinism.json"

    def fail(folder: Path, model: str, threads: int) -> None:
        raise AssertionError("it failed")

    monkeypatch.setattr(determinism, "train", fail)
    assert determinism.main(["--models", "capsnet", "convnet-avg", "--out", str(out)]) == 1
    assert [(row["model"], row["differ"]) for row in json.loads(out.read_text())["rows"]] == [
        ("capsnet", ["it failed"]),
        ("convnet-avg", ["it failed"]),
    ]
