"""Peak learning rates for the trainings of profile desk, chosen on validation images.

For each distinct kind of training (model, dataset, options, loss, batch size), a learning rate range test suggests a
peak. Three short trainings with a one-cycle schedule, at half of it, at it and at twice of it, are compared on up to
2,000 validation images, and the best one is chosen. Run: python -m benchmarks.tuned_rates [PAPER ...] [--steps 400]
[--dry-run]; adds to results/learning/rates.json, which docs/performance.md shows.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from torchcaps.bench.learning import measure_curve
from torchcaps.data import Subset
from torchcaps.environment import describe_environment
from torchcaps.errors import TorchcapsError
from torchcaps.files import read_json, write_json
from torchcaps.reproduce.jobs import training_job
from torchcaps.reproduce.spec import list_papers, load_spec
from torchcaps.train import RunConfig, resolve, training_splits
from torchcaps.train.tune_rate import WARMUP, tune_rate

TARGET = Path("results/learning/rates.json")
VALIDATED = 2_000
FACTORS = (0.5, 1.0, 2.0)
# What the best rate depends on.
KIND = ("model", "size", "options", "data", "augmentation", "loss", "reconstruction_weight", "optimizer", "batch_size")
KIND += ("clip_norm", "weight_decay")


def desk_trainings(papers: list[str]) -> list[tuple[str, RunConfig]]:
    """One training of each kind, with the names of the trainings of that kind."""
    kinds: dict[str, tuple[list[str], RunConfig]] = {}
    for paper in papers:
        spec = load_spec(paper)
        for name in spec.trainings:
            config = training_job(spec, name, "desk", 0).config
            kind = repr({key: getattr(config, key) for key in KIND})
            kinds.setdefault(kind, ([], config))[0].append(f"{paper}/{name}")
    return [(", ".join(names), config) for names, config in kinds.values()]


def choose_peak(config: RunConfig, steps: int) -> dict[str, Any]:
    """The suggested peak, the validation accuracies around it, and the best of them."""
    suggested = tune_rate(config).peak
    trials = {}
    for factor in FACTORS:
        changes: dict[str, Any] = {
            "schedule": f"one-cycle:{factor * suggested:g}:{WARMUP:g}",
            "learning_rate": None,
            "stop_at_accuracy": None,
            "steps": steps,
            "epochs": 1000,
        }
        short = resolve(**config.model_dump() | changes)
        _, validation = training_splits(short)
        few = Subset(validation, torch.arange(min(VALIDATED, len(validation))))
        try:
            trials[f"{factor * suggested:g}"] = measure_curve(short, few, evaluations=1)["points"][-1]["accuracy"]
        except TorchcapsError:  # the training diverged
            trials[f"{factor * suggested:g}"] = None
    best = max(trials, key=lambda peak: trials[peak] or 0.0)
    return {"suggested": suggested, "validation_accuracy": trials, "peak": float(best), "steps": steps}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("papers", nargs="*", help="default: all")
    parser.add_argument("--steps", type=int, default=400, help="of each training")
    parser.add_argument("--dry-run", action="store_true", help="list the kinds of training")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for names, config in desk_trainings(given.papers or list_papers()):
        kind = {key: config.model_dump(mode="json")[key] for key in KIND}
        rows = read_json(TARGET)["rows"] if TARGET.is_file() else []
        if given.dry_run or any(row["kind"] == kind and row["steps"] == given.steps for row in rows):
            print(names, config.model, config.data, config.options, config.batch_size)
            continue
        row = {"trainings": names, "kind": kind} | choose_peak(config, given.steps)
        write_json(TARGET, {"rows": [*rows, row], "environment": describe_environment()})
        print(row, flush=True)


if __name__ == "__main__":
    main()
