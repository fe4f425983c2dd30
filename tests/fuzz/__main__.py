"""python -m tests.fuzz --inputs 100000: the counts go to results/reliability/fuzz.json"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
from pathlib import Path

from tests.fuzz.campaign import COUNTS, IN_HAND, work
from torchcaps.environment import describe_environment
from torchcaps.files import read_json, write_json


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/reliability/fuzz.json"))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        process = multiprocessing.get_context("spawn").Process(target=work, args=(asked.inputs, asked.seed, folder))
        process.start()
        process.join()
        if process.exitcode != 0:
            in_hand = folder / IN_HAND
            where = in_hand.read_text(encoding="utf-8") if in_hand.is_file() else "the start"
            print(f"the process ended with {process.exitcode} (below zero: by that signal) at {where}", file=sys.stderr)
            return 1
        report = read_json(folder / COUNTS)
    write_json(asked.out, report | {"environment": describe_environment()})
    print(json.dumps(report, indent=2))
    return 1 if report["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
