"""python -m tests.determinism: every model twice on one and on two threads, to results/reliability/determinism.json"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.determinism.twice import MODELS, differences, train
from tests.reliability import RESULTS, provenance
from torchcaps.files import write_json


def measure(model: str, threads: Sequence[int], folder: Path) -> list[dict[str, Any]]:
    """Train a model twice on each number of threads, and compare the files of the runs."""
    runs = {(count, time): folder / f"{model}-{count}-{time}" for count in threads for time in (1, 2)}
    for (count, _), run in runs.items():
        train(run, model, count)
    pairs = [(f"twice on {count} threads", True, runs[count, 1], runs[count, 2]) for count in threads]
    if {1, 2} <= set(threads):
        pairs.append(("one thread against two", False, runs[1, 1], runs[2, 1]))
    return [
        {"model": model, "what": what, "promised": promised, "differ": differences(one, other)}
        for what, promised, one, other in pairs
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.determinism", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--out", type=Path, default=RESULTS / "determinism.json")
    asked = parser.parse_args(arguments)
    made_by, rows = provenance(), []
    for model in asked.models:
        with tempfile.TemporaryDirectory() as name:
            try:
                found = measure(model, asked.threads, Path(name))
            except AssertionError as error:  # a training failed: the other models are still measured
                found = [{"model": model, "what": "trains", "promised": True, "differ": [str(error)[-300:]]}]
        rows += found
        print(json.dumps(found), flush=True)
    write_json(asked.out, {"rows": rows} | made_by)
    return int(any(row["promised"] and row["differ"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
