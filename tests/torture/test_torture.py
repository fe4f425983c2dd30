"""The quick form of ``python -m tests.torture``, and that it detects failures."""

from __future__ import annotations

import datetime
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from tests.torture import __main__ as torture
from tests.torture import disk, victims
from tests.torture.scenarios import ask_to_stop, compare_runs, make_run
from tests.torture.victims import BROKEN, FINISHED, HUNG, REFUSED, STOPPED, Count, Ended, in_process
from torchcaps.environment import source_commit
from torchcaps.errors import TorchcapsError
from torchcaps.train import Interrupted, RunFolder, fit_run, processes

pytestmark = pytest.mark.process


@pytest.fixture
def torture_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Runs ``python -m tests.torture`` in this process; returns its exit code and its report."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # both are changed by kill_fetches, and set back afterwards
    monkeypatch.setenv("TORCHCAPS_DATA", str(tmp_path))

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        code = torture.main([*arguments, "--out", str(tmp_path / "torture.json")])
        return code, json.loads((tmp_path / "torture.json").read_text())

    return run


def test_nothing_is_lost_when_processes_are_killed_or_stopped(torture_program: Any) -> None:
    code, report = torture_program("--kills", "4", "--disks", "0")
    assert [wrong for each in report["scenarios"].values() for wrong in each["wrong"]] == []
    assert (code, report["wrong"]) == (0, 0)
    assert [(each["kills"], each["stops"]) for each in report["scenarios"].values()] == [
        (1, 0),
        (1, 0),
        (0, 2),  # SIGTERM, SIGHUP
        (1, 0),
        (1, 0),
    ]
    assert report["environment"]["commit"] == source_commit()
    assert report["date"] <= datetime.datetime.now(datetime.UTC).date().isoformat()


def test_nothing_is_lost_when_a_disk_is_full_or_read_only(tmp_path: Path, torture_program: Any) -> None:
    if not disk.can_mount(tmp_path):
        pytest.skip("only root may mount a disk")
    code, report = torture_program("--kills", "0", "--disks", "3")
    found = {name: report["scenarios"][name] for name in torture.DISKS}
    assert [wrong for each in found.values() for wrong in each["wrong"]] == []
    assert [(each["victims"], each["refusals"]) for each in found.values()] == [(3, 3), (3, 3), (3, 0)]
    assert code == 0


def test_a_failed_scenario_is_counted_and_the_others_run(torture_program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that does not save on request, and one that crashes."""

    def crash(folder: Path, times: int, draw: random.Random, count: Count) -> None:
        raise ValueError("out of order")

    monkeypatch.setattr(processes, "SIGNALS", [])  # the signals then end the process
    scenarios = {"first": crash, "second": ask_to_stop}
    monkeypatch.setattr(torture, "KILLS", scenarios)
    code, report = torture_program("--kills", "1", "--disks", "0")
    assert (code, report["wrong"]) == (1, 3)
    assert "ValueError: out of order" in report["scenarios"]["first"]["wrong"][0]
    assert report["scenarios"]["second"]["wrong"][0].startswith("SIGTERM after step")


def test_a_changed_weight_and_a_lost_line_are_seen(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "tiny")
    fit_run(run)
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


def test_how_a_process_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise TorchcapsError("one sentence")

    def stop() -> None:
        raise Interrupted

    said = tmp_path / "said"
    ended = in_process(refuse, said)
    assert (ended.code, ended.said) == (REFUSED, "one sentence")
    assert in_process(lambda: 1 / 0, said).code == BROKEN
    assert in_process(stop, said).code == STOPPED
    assert in_process(lambda: os.kill(os.getpid(), signal.SIGHUP), said).describe() == "ended by signal 1: "
    assert in_process(lambda: time.sleep(9), said, kill_after=0.01).code == -signal.SIGKILL
    assert in_process(lambda: print("Traceback", file=sys.stderr), said).stderr == "Traceback\n"
    assert in_process(lambda: os.write(2, b"Traceback"), said).stderr == "Traceback"
    ended = in_process(lambda: None, said)
    assert (ended.code, ended.said) == (FINISHED, ""), "what an earlier process said is forgotten"
    monkeypatch.setattr(victims, "LIMIT_SECONDS", 0.1)
    assert in_process(lambda: time.sleep(9), said).code == HUNG


@pytest.mark.parametrize(
    ("ended", "wrong"),
    [
        (Ended(REFUSED, "cannot write x: disk full.", ""), ""),
        (Ended(FINISHED, "", ""), "finished"),  # nothing was refused, although nothing could be written
        (Ended(BROKEN, "Traceback ...", ""), "crashed"),
        (Ended(REFUSED, "cannot write x\nand more", ""), "expected one sentence"),
        (Ended(REFUSED, "no", ""), "expected one sentence"),
        (Ended(REFUSED, "cannot write x", "Traceback in a thread"), "a traceback on standard error"),
    ],
)
def test_what_counts_as_one_sentence(ended: Ended, wrong: str) -> None:
    count = Count()
    disk.expect_sentence(ended, "full", count)
    assert count.refusals == int(not wrong)
    assert wrong in " ".join(count.wrong)
    assert bool(count.wrong) == bool(wrong)
