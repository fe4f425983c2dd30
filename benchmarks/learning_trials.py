"""Short trials of how matrix capsules learn: initialization, schedule, clipping, iterations, margin, variance floor.

Each trial trains laptop-size matrix capsules for 400 steps of 32 MNIST digits without augmentation, on one thread, and
is evaluated on 2,000 validation images. Run: python -m benchmarks.learning_trials [NAME ...]; adds to
results/learning/trials.json, which docs/performance.md shows.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from torchcaps.bench.learning import measure_curve
from torchcaps.environment import describe_environment
from torchcaps.errors import TorchcapsError
from torchcaps.files import read_json, write_json
from torchcaps.train import resolve, training_splits

TARGET = Path("results/learning/trials.json")
BASE: dict[str, Any] = {
    "model": "matrix-capsnet",
    "data": "mnist",
    "augmentation": "",
    "steps": 400,
    "validation": 2000 / 60000,
    "schedule": "one-cycle:0.01:0.1",
}


def em(start: str = "identity", **routing: Any) -> dict[str, Any]:
    """Options of the model."""
    return {"options": {"start": start, "routing_options": routing}}


CLIP = {"clip_norm": 1.0}
TRIALS: dict[str, dict[str, Any]] = {
    "2 iterations, random start": em("random", iterations=2),
    "2 iterations, random start, clipping": em("random", iterations=2) | CLIP,
    "2 iterations, identity": em(iterations=2),
    "2 iterations, identity, clipping": em(iterations=2) | CLIP,
    "3 iterations, random start": em("random"),
    "3 iterations, random start, clipping": em("random") | CLIP,
    "3 iterations, identity": em(),
    "3 iterations, identity, clipping": em() | CLIP,
    "3 iterations, default recipe": em("random") | {"schedule": None},
    "2 iterations, identity, clipping, peak 0.02": em(iterations=2) | CLIP | {"schedule": "one-cycle:0.02:0.1"},
    "2 iterations, identity, clipping, peak 0.005": em(iterations=2) | CLIP | {"schedule": "one-cycle:0.005:0.1"},
    "2 iterations, identity, clipping, margin at half pace": em(iterations=2) | CLIP | {"margin_pace": 0.5},
    "2 iterations, identity, clipping, margin at twice the pace": em(iterations=2) | CLIP | {"margin_pace": 2.0},
    "2 iterations, identity, clipping, AdamW with weight decay 0.05": em(iterations=2)
    | CLIP
    | {"optimizer": "adamw", "weight_decay": 0.05},
    "2 iterations, identity, clipping, variance floor 0.1": em(iterations=2, variance_floor=0.1) | CLIP,
    "2 iterations, identity, clipping, variance floor 0.4": em(iterations=2, variance_floor=0.4) | CLIP,
    "2 iterations, identity, clipping, lambda 4": em(iterations=2, final_lambda=4.0) | CLIP,
    "3 iterations, identity, clipping, lambda 1": em(final_lambda=1.0) | CLIP,
    "3 iterations, identity, clipping, variance floor 0.5": em(variance_floor=0.5) | CLIP,
}


def main(names: list[str]) -> None:
    for name in names or TRIALS:
        for seed in (0,):
            rows = read_json(TARGET)["rows"] if TARGET.is_file() else []
            settings = BASE | TRIALS[name]
            if any(row["name"] == name and row["seed"] == seed and row["settings"] == settings for row in rows):
                continue
            config = resolve(**settings, seed=seed)
            _, validation = training_splits(config)
            try:
                found = measure_curve(config, validation, evaluations=2)
            except TorchcapsError as error:
                found = {"seed": seed, "points": [], "error": str(error)}
            rows.append({"name": name, "settings": settings} | found)
            write_json(TARGET, {"rows": rows, "environment": describe_environment()})
            print(name, seed, found.get("error") or found["points"], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
