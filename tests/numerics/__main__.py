"""python -m tests.numerics --images 10000: unusual images through every model, to results/reliability/numerics.json"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tests.numerics.stress import BATCH, EDGES, KINDS, Stressed, check_edges, stress
from tests.reliability import RESULTS, provenance
from torchcaps.files import read_json, write_json
from torchcaps.models import ModelRecord, models
from torchcaps.progress import progress_bar


def measured_before(file: Path, images: int, seed: int, commit: str | None) -> dict[str, dict[str, Any]]:
    """The models of a result file that were measured with the same counts at the same commit, without changes."""
    if not file.is_file() or commit is None or commit.endswith("+"):
        return {}
    before = read_json(file)
    if (before["inputs_per_model"], before["seed"]) != (images, seed):
        return {}
    return {name: each for name, each in before["models"].items() if each["commit"] == commit}


def measure(record: ModelRecord, images: int, batch: int, seed: int) -> dict[str, Any]:
    """Stress one model; a model that crashes is in trouble, and the others are still measured."""
    began = time.perf_counter()
    try:
        found = stress(record, images, batch=batch, seed=seed)
        check_edges(record, seed, found)
    except Exception as error:
        found = Stressed(troubles=[f"{type(error).__name__}: {str(error)[:300]}"])
    seconds = round(time.perf_counter() - began, 1)
    print(f"{record.name}: {found.images} images, {len(found.troubles)} troubles, {seconds} s", flush=True)
    return {"images": found.images, "troubles": found.troubles[:20], "seconds": seconds}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.numerics", description=__doc__)
    parser.add_argument("--images", type=int, default=10_000, help="for each model")
    parser.add_argument("--models", nargs="+", default=[record.name for record in models])
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "numerics.json")
    parser.add_argument("--resume", action="store_true", help="keep models already measured so at this commit")
    asked = parser.parse_args(arguments)
    made_by = provenance()
    commit = made_by["environment"]["commit"]
    report = measured_before(asked.out, asked.images, asked.seed, commit) if asked.resume else {}
    left = [models.get(name) for name in asked.models if name not in report]
    with progress_bar("models under stress", len(left)) as advance:
        for record in left:
            report[record.name] = measure(record, asked.images, asked.batch, asked.seed) | {"commit": commit}
            counts = {
                "inputs_per_model": asked.images,
                "seed": asked.seed,
                "kinds": [*KINDS, "each of them attacked", *EDGES],
                "models": report,
                "models_in_all": len(list(models)),
                "images": sum(each["images"] for each in report.values()),
                "threads": torch.get_num_threads(),
            }
            write_json(asked.out, counts | made_by)  # after every model, for --resume
            advance(1)
    return int(any(each["troubles"] for each in report.values()))


if __name__ == "__main__":
    sys.exit(main())
