"""python -m tests.determinism: every model twice on one and on two threads, to results/reliability/determinism.json"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.determinism.twice import MODELS, differences, train
from torchcaps.environment import describe_environment
from torchcaps.files import write_json


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.determinism", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/reliability/determinism.json"))
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for model in MODELS:
            runs = {(threads, time): Path(name) / f"{model}-{threads}-{time}" for threads in (1, 2) for time in (1, 2)}
            for (threads, _), folder in runs.items():
                train(folder, model, threads)
            for threads in (1, 2):
                found = differences(runs[threads, 1], runs[threads, 2])
                rows.append({"model": model, "what": f"twice on {threads} threads", "promised": True, "differ": found})
            found = differences(runs[1, 1], runs[2, 1])
            rows.append({"model": model, "what": "one thread against two", "promised": False, "differ": found})
            print(json.dumps(rows[-3:]), flush=True)
    write_json(asked.out, {"rows": rows, "environment": describe_environment()})
    return int(any(row["promised"] and row["differ"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
