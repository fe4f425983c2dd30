"""python -m tests.numerics --inputs 10000: strange images through every model, to results/reliability/numerics.json"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch

from tests.numerics.stress import EDGES, KINDS, stress
from torchcaps.environment import describe_environment
from torchcaps.files import read_json, write_json
from torchcaps.models import models
from torchcaps.progress import progress_bar


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.numerics", description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000, help="for each model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/reliability/numerics.json"))
    parser.add_argument("--go-on", action="store_true", help="keep the models that the file has already")
    asked = parser.parse_args()
    report: dict[str, dict[str, object]] = {}
    if asked.go_on and asked.out.is_file():
        before = read_json(asked.out)
        if (before["inputs_per_model"], before["seed"]) != (asked.inputs, asked.seed):
            parser.error(f"{asked.out} was made with other numbers of inputs or another seed")
        report = before["models"]
    left = [record for record in models if record.name not in report]
    with progress_bar("models under stress", len(left)) as advance:
        for record in left:
            began = time.perf_counter()
            found = stress(record, asked.inputs, seed=asked.seed)
            seconds = round(time.perf_counter() - began, 1)
            environment = describe_environment()
            report[record.name] = {
                "images": found.images,
                "troubles": found.troubles[:20],
                "seconds": seconds,
                "commit": environment["commit"],
            }
            print(f"{record.name}: {found.images} images, {len(found.troubles)} troubles, {seconds} s", flush=True)
            # As it comes: a run that is cut off keeps what it had.
            write_json(
                asked.out,
                {
                    "inputs_per_model": asked.inputs,
                    "seed": asked.seed,
                    "kinds": [*KINDS, "each of them attacked", *EDGES],
                    "models": report,
                    "models_in_all": len(list(models)),
                    "images": sum(int(str(each["images"])) for each in report.values()),
                    "threads": torch.get_num_threads(),
                    "environment": environment,
                },
            )
            advance(1)
    return int(any(each["troubles"] for each in report.values()))


if __name__ == "__main__":
    sys.exit(main())
