"""The torture itself is slow; here a few kills, and that it would see what it looks for."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.torture import __main__ as torture
from tests.torture.scenarios import compare_runs, kill_fetches, make_run
from tests.torture.victims import BROKEN, REFUSED, Count, in_process
from torchcaps.errors import TorchcapsError
from torchcaps.train import RunFolder, fit


def test_fetches_that_are_killed_leave_nothing_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path))
    count = kill_fetches(tmp_path, 4, random.Random(0))
    assert count.kills == 4
    assert count.wrong == []


def test_a_changed_weight_and_a_lost_line_are_seen(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "tiny")
    fit(run)
    shutil.copytree(run.path, tmp_path / "other")
    other = RunFolder(tmp_path / "other")
    same = Count()
    compare_runs(run, other, same)
    assert same.wrong == []
    weights = load_file(other.best)
    next(iter(weights.values())).flatten()[0] += 1e-7
    save_file(weights, other.best)
    other.metrics_file.write_text("\n".join(other.metrics_file.read_text().splitlines()[:-1]))
    (other.path / ".half.tmp").touch()
    compare_runs(run, other, changed := Count())
    assert len(changed.wrong) == 3


def test_how_a_victim_ends(tmp_path: Path) -> None:
    def refuse() -> None:
        raise TorchcapsError("one sentence")

    assert in_process(refuse, tmp_path / "said").code == REFUSED
    assert (tmp_path / "said").read_text() == "one sentence"
    assert in_process(lambda: 1 / 0, tmp_path / "said").code == BROKEN
    assert in_process(lambda: None, tmp_path / "said", kill_after=None).code == 0


@pytest.mark.slow
def test_torture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sys.argv", ["torture", "--kills", "30", "--disks", "3", "--out", str(tmp_path / "torture.json")]
    )
    assert torture.main() == 0
