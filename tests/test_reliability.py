"""All reliability measurements run to completion; failures appear in the exit code and in the table."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import reliability
from tests.reliability import run_all, run_one, table

pytestmark = pytest.mark.process


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_what_one_finds_does_not_stop_the_others(capfd: pytest.CaptureFixture[str]) -> None:
    commands = {
        "wrong": python("raise SystemExit(1)"),
        "dead": python("import os; os.kill(os.getpid(), 9)"),
        "fine": python("sum(range(3_000_000))"),
    }
    rows = run_all(commands, limit_seconds=60)
    assert [row.outcome for row in rows] == ["WRONG", "FAILED with exit code -9", "ok"]
    assert [row.ok for row in rows] == [False, False, True]
    assert rows[2].cpu_seconds > 0.02
    lines = table(rows).splitlines()
    assert len(lines) == 5
    assert lines[1].endswith("WRONG")
    assert float(lines[4].split()[1]) == pytest.approx(sum(row.cpu_seconds for row in rows), abs=0.06)
    assert "[3/3] fine: ok" in capfd.readouterr().out


def test_a_measurement_that_hangs_is_stopped_with_the_processes_that_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(pid)!r}, 'w').write(str(child.pid))\ntime.sleep(60)"
    )
    row = run_one("slow", python(code), limit_seconds=1.5)
    assert row.outcome == "STOPPED after 0.000417 hours"
    deadline = time.monotonic() + 5
    state = Path(f"/proc/{pid.read_text()}/stat")
    while state.is_file() and state.read_text().split()[2] != "Z":  # a zombie, where nobody collects orphans
        assert time.monotonic() < deadline, "its child should have been killed too"
        time.sleep(0.02)


@pytest.mark.parametrize("found", [0, 1])
def test_the_counts_reach_the_programs_and_the_exit_code_tells(
    found: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    called: list[list[str]] = []

    def pretend(name: str, command: list[str], limit_seconds: float) -> reliability.Row:
        called.append(command[2:])
        return reliability.Row(name, "WRONG" if found and name == "fuzz" else "ok", 1.5, 2.0)

    monkeypatch.setattr(reliability, "run_one", pretend)
    asked = ["--kills", "3", "--disks", "2", "--inputs", "5", "--images", "7", "--out", str(tmp_path)]
    assert reliability.main(asked) == found
    assert called == [
        ["tests.torture", "--kills", "3", "--disks", "2", "--out", str(tmp_path / "torture.json")],
        ["tests.fuzz", "--inputs", "5", "--out", str(tmp_path / "fuzz.json")],
        ["tests.train.measure_processes", "--out", str(tmp_path / "processes.json")],
        ["tests.determinism", "--out", str(tmp_path / "determinism.json")],
        ["tests.numerics", "--images", "7", "--resume", "--out", str(tmp_path / "numerics.json")],
    ]
    assert capsys.readouterr().out.splitlines()[-1].split() == ["total", "7.5", "10.0"]


def test_make_passes_the_counts_on() -> None:
    root = Path(__file__).parents[1]
    if not (root / "Makefile").is_file():
        pytest.skip("only a clone has the Makefile")
    counts = ["KILLS=20", "DISKS=2", "INPUTS=20000", "IMAGES=50", "OUT=elsewhere"]
    command = ["make", "--dry-run", "--assume-old=.venv/stamps/dev", "reliability", *counts]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True, env=os.environ)
    assert "--kills 20 --disks 2 --inputs 20000 --images 50 --out elsewhere;" in " ".join(
        done.stdout.replace("\\\n", " ").split()
    )
