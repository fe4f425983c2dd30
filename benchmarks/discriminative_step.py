"""Search for the step size gamma and the penalty weight lambda of discriminative routing.

The paper (yang2021) gives no gamma, and 0.001 as an example of lambda. Each row is a training of CapsNet without
decoder; gamma 0 keeps the couplings frozen at their start, which is the baseline. A row has the accuracy on validation
images through the training, and how far the couplings moved. The test images are not used.

Stages "short" and "long" search on one seed, with 16 filters in the first convolution to be cheap. What the ascent does
to the couplings grows with the images seen, so that a step size that looks good in a short training may harm a longer
one. Stage "laptop" compares chosen settings with frozen couplings in the laptop network, with three seeds. Rows in
the file are not measured again.

Run: python -m benchmarks.discriminative_step [STAGE...]; writes results/discriminative-step.json.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch

from torchcaps.environment import describe_environment
from torchcaps.files import read_json, write_json
from torchcaps.train import RunFolder, fit_run, load, new_run, read_validation_metrics, resolve

TARGET = Path("results/discriminative-step.json")
DATA = ("fashion-mnist", "mnist")
TRAINING = {
    "size": "laptop",
    "batch_size": 32,
    "learning_rate": 0.002,
    "schedule": "constant",
    "augmentation": "",
}
STAGES: dict[str, dict[str, Any]] = {
    "short": {"train_images": 10_000, "validation": 0.2, "epochs": 2, "options": {"filters": 16, "decoder": "none"}},
    "long": {"train_images": 20_000, "validation": 0.1, "epochs": 3, "options": {"filters": 16, "decoder": "none"}},
    "laptop": {"train_images": 20_000, "validation": 0.1, "epochs": 3, "options": {"decoder": "none"}},
}
SEEDS = {"short": 1, "long": 1, "laptop": 3}
FROZEN = ("l2", 0.0, 0.001)
# Penalty, gamma and lambda.
GRIDS = {
    "short": (FROZEN, ("l2", 1e-4, 0.001), ("l2", 1e-3, 0.001), ("l2", 1e-4, 10.0), ("l2", 3e-4, 0.001)),
    "long": (("l2", 3e-5, 1.0), ("l1", 3e-5, 0.1), FROZEN, ("l2", 1e-4, 1.0), ("l2", 3e-5, 0.001)),
    "laptop": (FROZEN, ("l2", 3e-5, 1.0), ("l1", 3e-5, 0.1)),
}


def settings() -> Iterator[dict[str, Any]]:
    """Yield stage, data, penalty, gamma, lambda and seed of every row."""
    for stage, grid in GRIDS.items():
        for seed, data, (penalty, gamma, weight) in product(range(SEEDS[stage]), DATA, grid):
            yield {"stage": stage, "data": data, "penalty": penalty, "gamma": gamma, "lambda": weight, "seed": seed}


def measure(row: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Train one network; return its validation accuracies in % and a summary of its couplings."""
    began = time.perf_counter()
    stage = STAGES[row["stage"]]
    options = stage["options"] | {"routing_options": {"gamma": row["gamma"], "weight": row["lambda"]}}
    given = TRAINING | stage | {"model": f"capsnet-{row['penalty']}", "data": row["data"], "options": options}
    config = resolve(**given, seed=row["seed"], device="cpu")
    run = new_run(config, folder / "-".join(map(str, row.values())))
    fit_run(run)
    accuracies = [round(100 * line.accuracy, 2) for line in read_validation_metrics(run.metrics_file)]
    return {
        "validation accuracy (%)": accuracies,
        "couplings": summarize_couplings(run),
        "seconds": round(time.perf_counter() - began, 1),
    }


def summarize_couplings(run: RunFolder) -> dict[str, float]:
    """Return the spread of the couplings of a run's class capsules."""
    (couplings,) = (value for name, value in load(run.path).state_dict().items() if name.endswith("routing.couplings"))
    found = {
        "mean": couplings.mean(),
        "deviation": couplings.std(),
        "lowest": couplings.min(),
        "highest": couplings.max(),
        "negative share": (couplings < 0).float().mean(),
    }
    return {name: float(f"{float(value):.4g}") for name, value in found.items()}


def main() -> None:
    torch.set_num_threads(1)
    measured = read_json(TARGET) if TARGET.is_file() else {}
    measured = measured if measured.get("training") == TRAINING else {}
    rows = measured.get("rows", [])
    stages = sys.argv[1:] or list(STAGES)
    missing = [row for row in settings() if not any(row.items() <= each.items() for each in rows)]
    wanted = [row for row in missing if row["stage"] in stages]
    with tempfile.TemporaryDirectory() as folder:
        for row in wanted:
            rows.append(row | measure(row, Path(folder)))
            print(rows[-1], flush=True)
            write_json(
                TARGET,
                measured
                | {
                    "rows": rows,
                    "training": TRAINING,
                    "stages": STAGES,
                    "selection_split": "validation",
                    "environment": describe_environment(),
                },
            )


if __name__ == "__main__":
    main()
