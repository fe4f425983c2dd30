"""python -m tests.fuzz --inputs 100000: the counts go to results/reliability/fuzz.json"""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
import tempfile
from pathlib import Path

from tests.fuzz.campaign import run
from torchcaps.environment import describe_environment
from torchcaps.files import write_json


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/reliability/fuzz.json"))
    asked = parser.parse_args()
    faulthandler.enable()  # a decoder in C that dies should say where
    with tempfile.TemporaryDirectory() as folder:
        found, cost = run(asked.inputs, asked.seed, Path(folder))
    report = {
        "inputs": asked.inputs,
        "seed": asked.seed,
        "readers": {
            name: {"read": each.read, "refused": each.refused, "wrong": len(each.wrong)} for name, each in found.items()
        },
        "wrong": [line for each in found.values() for line in each.wrong],
        **cost,
        "environment": describe_environment(),
    }
    write_json(asked.out, report)
    print(json.dumps({key: value for key, value in report.items() if key != "environment"}, indent=2))
    return 1 if report["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
