"""Trials of how matrix capsules learn: initialization, schedule, batch size, clipping, iterations, margin, floor.

A trial trains laptop-size matrix capsules on one thread and is evaluated on validation images: for MNIST 2,000 digits,
for smallNORB toys that are not trained on. Run: python -m benchmarks.learning_trials [NAME ...] [--seeds 0,1]; adds to
results/learning/trials.json, which docs/performance.md shows.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.learning_trial_settings import BASE, TRIALS

from torchcaps.bench.learning import measure_curve
from torchcaps.environment import describe_environment
from torchcaps.errors import TorchcapsError
from torchcaps.files import read_json, write_json
from torchcaps.train import resolve, training_splits

TARGET = Path("results/learning/trials.json")


def main(names: list[str], seeds: list[int]) -> None:
    for name in names or TRIALS:
        trial = TRIALS[name]
        for seed in seeds:
            rows = read_json(TARGET)["rows"] if TARGET.is_file() else []
            settings = BASE | trial.settings
            if any(row["name"] == name and row["seed"] == seed and row["settings"] == settings for row in rows):
                continue
            config = resolve(**settings, seed=seed)
            _, validation = training_splits(config)
            try:
                found = measure_curve(config, validation, evaluations=2, change=trial.change)
            except TorchcapsError as error:
                found = {"seed": seed, "points": [], "error": str(error)}
            environment = describe_environment()
            row = {"name": name, "settings": settings, "split": "validation", "commit": environment["commit"]} | found
            rows = read_json(TARGET)["rows"] if TARGET.is_file() else []
            write_json(TARGET, {"rows": [*rows, row], "environment": environment})
            print(name, seed, found.get("error") or [tuple(p.values()) for p in found["points"]], flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", default="0", type=lambda text: [int(part) for part in text.split(",")])
    given = parser.parse_args()
    main(given.names, given.seeds)
