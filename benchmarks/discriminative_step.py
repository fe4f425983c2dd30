"""How large the ascent step of discriminative routing should be; the paper gives none.

Laptop CapsNet with l1 and with l2 on 10,000 digits, one epoch, several step sizes; validation images alone are looked
at. Run: python -m benchmarks.discriminative_step; writes results/discriminative-step.json.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from torchcaps.environment import describe_environment
from torchcaps.files import write_json
from torchcaps.train import fit, new_run, read_lines, resolve

GAMMAS = (0.0, 1e-5, 1e-4, 1e-3, 1e-2)
SEEDS = (0, 1)


def validation_accuracy(model: str, gamma: float, seed: int, folder: Path) -> float:
    """Per cent on the validation images, at the checkpoint that they chose."""
    options = {"routing_options": {"gamma": gamma}}
    config = resolve(model=model, size="laptop", train_images=10_000, epochs=1.0, seed=seed, options=options)
    run = new_run(config, folder / f"{model}-{gamma}-{seed}")
    fit(run)
    return 100 * max(line.accuracy for line in read_lines(run.metrics_file) if line.split == "validation")


def main() -> None:
    began, rows = time.perf_counter(), []
    with tempfile.TemporaryDirectory() as folder:
        for model in ("capsnet-l1", "capsnet-l2"):
            for gamma in GAMMAS:
                found = [round(validation_accuracy(model, gamma, seed, Path(folder)), 2) for seed in SEEDS]
                rows.append({"model": model, "gamma": gamma, "validation (%)": found})
                print(rows[-1])
    write_json(
        Path("results/discriminative-step.json"),
        {
            "rows": rows,
            "seeds": SEEDS,
            "training images": 10_000,
            "selection_split": "validation",
            "seconds": round(time.perf_counter() - began, 1),
            "environment": describe_environment(),
        },
    )


if __name__ == "__main__":
    main()
