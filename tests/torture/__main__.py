"""python -m tests.torture --kills 120: kills, full disks, read-only ones; counts to results/reliability/torture.json

Real processes are killed with SIGKILL at random moments. Afterwards weights must be those of an undisturbed run to the
bit, no result lost or doubled, no file half written, and every message one sentence.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import torch

from tests.torture import disk, scenarios
from torchcaps.environment import describe_environment
from torchcaps.files import write_json


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--kills", type=int, default=120)
    parser.add_argument("--disks", type=int, default=10, help="times that a disk is full, and read-only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/reliability/torture.json"))
    asked = parser.parse_args()
    torch.set_num_threads(1)  # processes are forked, and threads do not survive that
    draw, began = random.Random(asked.seed), time.perf_counter()
    third = -(-asked.kills // 3)
    with tempfile.TemporaryDirectory() as name:
        folders = {part: Path(name) / part for part in ("trainings", "reproductions", "fetches", "disks")}
        for folder in folders.values():
            folder.mkdir()
        counts = {
            "trainings killed": scenarios.kill_trainings(folders["trainings"], third, draw),
            "reproductions killed": scenarios.kill_reproductions(folders["reproductions"], third, draw),
            "fetches killed": scenarios.kill_fetches(folders["fetches"], third, draw),
            "disks full": disk.fill_and_free(folders["disks"], asked.disks, draw),
            "disks read-only": disk.forbid_and_allow(folders["disks"], asked.disks),
        }
    report = {
        "kills": sum(count.kills for count in counts.values()),
        "scenarios": {name: asdict(count) for name, count in counts.items()},
        "wrong": sum(len(count.wrong) for count in counts.values()),
        "seconds": round(time.perf_counter() - began, 1),
        "seed": asked.seed,
    }
    print(json.dumps(report, indent=2))
    write_json(asked.out, report | {"environment": describe_environment()})
    return int(bool(report["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
