"""python -m tests.fuzz --inputs 100000: the counts go to results/reliability/fuzz.json"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.campaign import COUNTS, IN_HAND, work
from tests.reliability import RESULTS, provenance
from torchcaps.files import read_json, write_json


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "fuzz.json")
    asked = parser.parse_args(arguments)
    made_by = provenance()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        process = multiprocessing.get_context("spawn").Process(target=work, args=(asked.inputs, asked.seed, folder))
        process.start()
        process.join()
        if process.exitcode == 0:
            report = read_json(folder / COUNTS)
        else:
            in_hand = folder / IN_HAND
            where = in_hand.read_text(encoding="utf-8") if in_hand.is_file() else f"{asked.seed}/the start/0"
            wrong = f"{where}: the process ended with {process.exitcode} (negative: a signal)"
            tried = int(where.rpartition("/")[2])
            report = {"inputs": tried, "seed": asked.seed, "readers": {}, "wrong": [wrong], "megabytes_grown": 0.0}
    write_json(asked.out, report | made_by)
    print(json.dumps(report, indent=2))
    return 1 if report["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
