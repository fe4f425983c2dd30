"""Run every reliability measurement in its long form: python -m tests.reliability

Each measurement is a program of its own that writes one file of results/reliability/. A measurement that finds
something wrong, crashes or exceeds its time limit does not stop the others. A table of outcomes and times is printed at
the end, and the exit code is 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcaps.environment import describe_environment

RESULTS = Path("results/reliability")
LIMIT_HOURS = 8.0  # for each measurement; the longest takes about half an hour on two cores


def provenance() -> dict[str, Any]:
    """What every result file records besides its counts: the environment with the commit, and the date (UTC).

    Call it before measuring: a commit made in the meantime is not the one that was measured.
    """
    return {"environment": describe_environment(), "date": datetime.datetime.now(datetime.UTC).date().isoformat()}


@dataclass(frozen=True)
class Row:
    """The outcome of one measurement."""

    name: str
    outcome: str
    cpu_seconds: float  # user and system time, with all processes that it started
    seconds: float

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"


def children_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_one(name: str, command: Sequence[str], limit_seconds: float) -> Row:
    """Run a program to its end; past its time limit, or on Ctrl-C, kill it and every process that it started."""
    cpu, began = children_cpu_seconds(), time.monotonic()
    process = subprocess.Popen(command, start_new_session=True)
    try:
        code = process.wait(timeout=limit_seconds)
        outcome = {0: "ok", 1: "WRONG"}.get(code, f"FAILED with exit code {code}")
    except subprocess.TimeoutExpired:
        outcome = f"STOPPED after {limit_seconds / 3600:.3g} hours"
    except KeyboardInterrupt:
        outcome = "INTERRUPTED"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return Row(name, outcome, children_cpu_seconds() - cpu, time.monotonic() - began)


def run_all(commands: Mapping[str, Sequence[str]], limit_seconds: float) -> list[Row]:
    """Run the programs one after the other, whatever becomes of each; Ctrl-C ends the one that runs and the rest."""
    rows: list[Row] = []
    for number, (name, command) in enumerate(commands.items(), 1):
        print(f"[{number}/{len(commands)}] {name}: {' '.join(command[1:])}", flush=True)
        rows.append(run_one(name, command, limit_seconds))
        print(f"[{number}/{len(commands)}] {name}: {rows[-1].outcome}, {rows[-1].cpu_seconds:.0f} CPU s", flush=True)
        if rows[-1].outcome == "INTERRUPTED":
            break
    return rows


def table(rows: Sequence[Row]) -> str:
    """Outcome and times of each measurement, and their sum."""
    total = Row("total", "", sum(row.cpu_seconds for row in rows), sum(row.seconds for row in rows))
    lines = [f"{'measurement':14}{'CPU s':>10}{'wall s':>10}  outcome"]
    lines += [f"{row.name:14}{row.cpu_seconds:10.1f}{row.seconds:10.1f}  {row.outcome}" for row in [*rows, total]]
    return "\n".join(line.rstrip() for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.reliability", description=__doc__)
    parser.add_argument("--kills", type=int, default=120, help="processes to kill (torture)")
    parser.add_argument("--disks", type=int, default=10, help="full and read-only disks, each so many (torture)")
    parser.add_argument("--inputs", type=int, default=100_000, help="damaged files (fuzz)")
    parser.add_argument("--images", type=int, default=10_000, help="images per model (numerics)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="directory of the result files")
    asked = parser.parse_args(arguments)
    programs = {
        "torture": ("tests.torture", "--kills", str(asked.kills), "--disks", str(asked.disks)),
        "fuzz": ("tests.fuzz", "--inputs", str(asked.inputs)),
        "processes": ("tests.train.measure_processes",),
        "determinism": ("tests.determinism",),
        "numerics": ("tests.numerics", "--images", str(asked.images), "--resume"),  # the longest comes last
    }
    commands = {
        name: [sys.executable, "-m", *program, "--out", str(asked.out / f"{name}.json")]
        for name, program in programs.items()
    }
    rows = run_all(commands, 3600 * LIMIT_HOURS)
    print(f"\n{table(rows)}", flush=True)
    return int(len(rows) < len(commands) or not all(row.ok for row in rows))


if __name__ == "__main__":
    sys.exit(main())
