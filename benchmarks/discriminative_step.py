"""Search for the step size gamma and the penalty weight lambda of discriminative routing.

The paper (yang2021) gives no gamma, and 0.001 as an example of lambda. Each row is a training of the laptop CapsNet
without decoder, with batch size and schedule of profile desk. It has the accuracy on validation images through the
training, and how far the couplings moved. The test images are not used. Gamma 0 freezes the couplings at their start:
this is the baseline.

The objective is a sum over the images of a batch, so the ascent moves the couplings in proportion to ``reach``, gamma
times the images seen. Stage "search" compares values of reach and lambda on one seed. Stage "finalists" compares one
setting of each penalty with the baseline, in a longer training with the same reach and three seeds: the setting that
moves the couplings most, of those that lose at most half a point in the search, as the mean over both datasets. Rows
in the file are not measured again.

Run: python -m benchmarks.discriminative_step (about half a core-hour); writes results/discriminative-step.json.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import torch

from torchcaps.environment import describe_environment, source_commit
from torchcaps.files import read_json, write_json
from torchcaps.train import RunFolder, fit_run, load, new_run, read_validation_metrics, resolve

TARGET = Path("results/discriminative-step.json")
DATA = ("fashion-mnist", "mnist")
TRAINING: dict[str, Any] = {
    "size": "laptop",
    "options": {"decoder": "none"},
    "batch_size": 64,
    "schedule": "one-cycle:0.003:0.1",
    "augmentation": "",
}
STAGES: dict[str, dict[str, Any]] = {
    "search": {"train_images": 11_000, "validation": 3 / 11, "epochs": 2},
    "finalists": {"train_images": 15_000, "validation": 3 / 15, "epochs": 2},
}
SEEDS = {"search": 1, "finalists": 3}
FROZEN = ("l2", 0.0, 0.001)
# Penalty, reach and lambda.
GRID = (
    ("l2", 0.5, 1.0),
    ("l2", 1.6, 0.001),
    ("l2", 1.6, 1.0),
    ("l2", 1.6, 10.0),
    ("l2", 5.0, 0.001),
    ("l2", 5.0, 1.0),
    ("l2", 16.0, 1.0),
    ("l1", 1.6, 0.1),
    ("l1", 1.6, 1.0),
    ("l1", 5.0, 0.1),
)
MOST_LOST = 0.5  # points of accuracy that a finalist may lose in the search
Setting = tuple[str, float, float]


def planned(stage: str, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield stage, data, penalty, reach, lambda and seed of every row of a stage."""
    settings = [FROZEN, *(GRID if stage == "search" else finalists(rows))]
    for seed, (penalty, reach, weight), data in product(range(SEEDS[stage]), settings, DATA):
        yield {"stage": stage, "data": data, "penalty": penalty, "reach": reach, "lambda": weight, "seed": seed}


def finalists(rows: list[dict[str, Any]]) -> list[Setting]:
    """Return the setting of each penalty that moves the couplings most without harm in the search."""
    found: dict[Setting, list[dict[str, Any]]] = {}
    for row in rows:
        if row["stage"] == "search":
            found.setdefault((row["penalty"], row["reach"], row["lambda"]), []).append(row)
    least = _mean_accuracy(found.pop(FROZEN)) - MOST_LOST
    harmless = {setting: measured for setting, measured in found.items() if _mean_accuracy(measured) >= least}
    return [
        max((each for each in harmless if each[0] == penalty), key=lambda each: _spread(harmless[each]))
        for penalty in ("l2", "l1")
    ]


def _mean_accuracy(rows: list[dict[str, Any]]) -> float:
    return statistics.fmean(row["validation accuracy (%)"][-1] for row in rows)


def _spread(rows: list[dict[str, Any]]) -> float:
    """Return the standard deviation of the couplings as a share of their mean."""
    return statistics.fmean(row["couplings"]["deviation"] / row["couplings"]["mean"] for row in rows)


def measure(row: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Train one network; return its validation accuracies in % and a summary of its couplings."""
    began = time.process_time()
    stage = STAGES[row["stage"]]
    gamma = float(f"{row['reach'] / images_seen(stage):.3g}")
    options = TRAINING["options"] | {"routing_options": {"gamma": gamma, "weight": row["lambda"]}}
    given = TRAINING | stage | {"model": f"capsnet-{row['penalty']}", "data": row["data"], "options": options}
    config = resolve(**given, seed=row["seed"], device="cpu")
    run = new_run(config, folder / "-".join(map(str, row.values())))
    fit_run(run)
    accuracies = [round(100 * line.accuracy, 2) for line in read_validation_metrics(run.metrics_file)]
    return {
        "gamma": gamma,
        "validation accuracy (%)": accuracies,
        "couplings": summarize_couplings(run),
        "core_seconds": round(time.process_time() - began, 1),
        "commit": source_commit(),
    }


def images_seen(stage: dict[str, Any]) -> int:
    """Return the number of training images shown, over all epochs."""
    return int(stage["epochs"] * round(stage["train_images"] * (1 - stage["validation"])))


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
    fixed = {"training": TRAINING, "stages": STAGES, "selection_split": "validation"}
    found = read_json(TARGET) if TARGET.is_file() else {}
    rows = found["rows"] if fixed.items() <= found.items() else []
    with tempfile.TemporaryDirectory() as folder:
        for stage in STAGES:
            for row in list(planned(stage, rows)):
                if any(row.items() <= each.items() for each in rows):
                    continue
                rows.append(row | measure(row, Path(folder)))
                print(rows[-1], flush=True)
                write_json(TARGET, fixed | {"rows": rows, "environment": describe_environment()})


if __name__ == "__main__":
    main()
