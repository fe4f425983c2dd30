"""python -m tests.train.measure_processes: one process against two, to results/reliability/processes.json"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.train.test_processes import CLOSE, difference, make
from torchcaps.environment import describe_environment
from torchcaps.files import write_json
from torchcaps.train import fit

PAIRS = [("capsnet", "ddp"), ("capsnet", "fsdp"), ("capsnet-l1", "ddp"), ("capsnet-l1", "fsdp")]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.train.measure_processes", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/reliability/processes.json"))
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for model, strategy in PAIRS:
            alone = make(Path(name) / f"{model}-{strategy}-alone", model)
            together = make(Path(name) / f"{model}-{strategy}", model, devices=2, strategy=strategy)
            fit(alone)
            steps = fit(together).step
            gap = difference(alone, together)
            rows.append(
                {"model": model, "strategy": strategy, "processes": 2, "steps": steps, "largest_difference": gap}
            )
            print(json.dumps(rows[-1]), flush=True)
    write_json(asked.out, {"rows": rows, "promised": CLOSE, "environment": describe_environment()})
    return int(any(row["largest_difference"] > CLOSE for row in rows))


if __name__ == "__main__":
    sys.exit(main())
