"""python -m tests.torture --kills 120: kills, stop requests and unwritable disks, to results/reliability/torture.json

Real processes are killed with SIGKILL at random moments and in the middle of a checkpoint, asked to stop by a signal,
and refused writes by a full or read-only disk. Afterwards the weights must be those of an undisturbed run to the bit,
no result lost or duplicated, no file half written, and every error message one sentence.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from tests.reliability import RESULTS, provenance
from tests.torture import disk, scenarios
from tests.torture.victims import Count
from torchcaps.files import write_json
from torchcaps.progress import silence
from torchcaps.train import fit_run

Scenario = Callable[[Path, int, random.Random, Count], None]
# A fourth of --kills each, and twice as many stop requests. Each disk scenario runs --disks times.
KILLS: dict[str, Scenario] = {
    "trainings killed": scenarios.kill_trainings,
    "trainings killed while saving": scenarios.kill_while_saving,
    "trainings asked to stop": scenarios.ask_to_stop,
    "reproductions killed": scenarios.kill_reproductions,
    "fetches killed": scenarios.kill_fetches,
}
DISKS: dict[str, Scenario] = {
    "disks full": disk.fill_and_free,
    "disks read-only": disk.forbid_and_allow,
    "tensorboard folder alone": disk.forbid_tensorboard,
}


def measure(name: str, scenario: Scenario, times: int, draw: random.Random) -> Count:
    """Run one scenario; whatever it raises is something wrong, and the other scenarios still run."""
    count, began = Count(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            scenario(Path(folder), times, draw, count)
        except Exception:
            count.wrong.append(traceback.format_exc()[-600:])
    print(
        f"{name}: {count.victims} disturbed, {len(count.wrong)} wrong, {time.perf_counter() - began:.0f} s", flush=True
    )
    return count


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=120)
    parser.add_argument("--disks", type=int, default=10, help="of each kind of unwritable disk; needs root")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "torture.json")
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)  # processes are forked, and threads do not survive that
    made_by, draw, began = provenance(), random.Random(asked.seed), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, silence():
        fit_run(
            scenarios.make_run(Path(folder) / "run", "tiny")
        )  # so that no forked process has to import what it needs
    fourth = -(-asked.kills // 4)
    counts = {name: measure(name, scenario, fourth, draw) for name, scenario in KILLS.items()}
    counts |= {name: measure(name, scenario, asked.disks, draw) for name, scenario in DISKS.items() if asked.disks}
    report = {
        "kills": sum(count.kills for count in counts.values()),
        "scenarios": {name: asdict(count) for name, count in counts.items()},
        "wrong": sum(len(count.wrong) for count in counts.values()),
        "seconds": round(time.perf_counter() - began, 1),
        "seed": asked.seed,
    }
    print(json.dumps(report, indent=2), flush=True)
    write_json(asked.out, report | made_by)
    return int(bool(report["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
