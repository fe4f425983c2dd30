"""How large the ascent step of discriminative routing should be; the paper gives none.

Laptop CapsNet with the l2 penalty (l1 weighs as little beside the votes) on digits and on clothes, as long as the
laptop profile of yang2021 trains; several step sizes. Validation images alone are looked at: the best of the training,
and the last, because a step that is too large shows late. Run: python -m benchmarks.discriminative_step; writes
results/discriminative-step.json.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from torchcaps.environment import describe_environment
from torchcaps.files import write_json
from torchcaps.train import fit_run, new_run, read_metrics, resolve

GAMMAS = (0.0, 1e-5, 1e-4, 1e-3)
SCHEDULES = {"fashion-mnist": "step:0.96:1000", "mnist": "step:0.5:1000"}
TRAINING = {"model": "capsnet-l2", "size": "laptop", "train_images": 20_000, "epochs": 3.0, "seed": 0}


def validation_accuracies(data: str, gamma: float, folder: Path) -> list[float]:
    """Per cent on the validation images, through the training."""
    options = {"routing_options": {"gamma": gamma}}
    config = resolve(**TRAINING, data=data, schedule=SCHEDULES[data], options=options)
    run = new_run(config, folder / f"{data}-{gamma}")
    fit_run(run)
    return [100 * line.accuracy for line in read_metrics(run.metrics_file) if line.split == "validation"]


def main() -> None:
    began, rows = time.perf_counter(), []
    with tempfile.TemporaryDirectory() as folder:
        for data in SCHEDULES:
            for gamma in GAMMAS:
                found = validation_accuracies(data, gamma, Path(folder))
                best, last = round(max(found), 2), round(found[-1], 2)
                rows.append({"data": data, "gamma": gamma, "best validation (%)": best, "last validation (%)": last})
                print(rows[-1])
    write_json(
        Path("results/discriminative-step.json"),
        {
            "rows": rows,
            "training": TRAINING,
            "selection_split": "validation",
            "seconds": round(time.perf_counter() - began, 1),
            "environment": describe_environment(),
        },
    )


if __name__ == "__main__":
    main()
