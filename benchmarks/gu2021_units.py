"""Compactness of ConvNet-R and -CR with and without a ReLU on their units, which gu2021 leaves open.

Run: python -m benchmarks.gu2021_units; writes results/gu2021-units.json (half a core-hour).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from torchcaps import fit
from torchcaps.analysis.sweeps import FACTORS, affine_sweep, divergence, sweep_values, variance_shares
from torchcaps.data import ImageSet, load_dataset, split_off
from torchcaps.environment import describe_environment
from torchcaps.files import write_json
from torchcaps.models import Model, create_model, models
from torchcaps.train import evaluate_accuracy

BATCH, PEAK, VALIDATION, IMAGES = 64, 0.002, 5000, 400


def train(name: str, epochs: int, seed: int, **options: Any) -> tuple[Model, dict[str, Any]]:
    """Train a network of laptop size with a one-cycle schedule; validation images choose its weights."""
    training, validation = split_off(load_dataset("mnist"), VALIDATION, seed=0)
    recipe = models.get(name).recipe
    torch.manual_seed(seed)
    model = create_model(name, size="laptop", image_size=training.shape[1], **options)
    began = time.process_time()
    found = fit(
        model,
        training,
        validation,
        epochs=epochs,
        batch_size=BATCH,
        loss=recipe.loss,
        seed=seed,
        schedule=f"one-cycle:{PEAK}:0.1",
        augmentation="",
        reconstruction=recipe.reconstruction,
        reconstruction_weight=recipe.reconstruction_weight,
    )
    seconds = time.process_time() - began
    about = {"model": name, "options": options, "seed": seed, "epochs": epochs, "peak": PEAK, "core_seconds": seconds}
    return model, about | {"validation_accuracy": found.best_accuracy}


def units(seeds: int, epochs: int) -> Iterator[dict[str, Any]]:
    """Train ConvNet-R and -CR with and without a ReLU on their 160 units; score the class's 16 units and all 160."""
    for seed in range(seeds):
        for name, activation in (
            ("convnet-r", "none"),
            ("convnet-r", "relu"),
            ("convnet-cr", "none"),
            ("convnet-cr", "relu"),
            ("convnet-cr-sf", "none"),
        ):
            model, row = train(name, epochs, seed, activation=activation)
            test = load_dataset("mnist", "test")
            accuracy = 100 * evaluate_accuracy(model, test).accuracy
            yield row | {"accuracy": {"mnist": accuracy}, **compactness(model, test)}


@torch.no_grad()
def compactness(model: Model, test: ImageSet) -> dict[str, Any]:
    """Return the share of units at zero, and the compactness under each factor over 16 and over 160 units."""
    batch = test.batch(torch.arange(0, len(test), len(test) // IMAGES))
    pose = model(batch.images).pose
    assert pose is not None
    scores: dict[str, Any] = {}
    for factor in FACTORS:
        moved = affine_sweep(batch.images, factor, sweep_values(factor, test.shape[1], 11))
        found = torch.cat([model(part).pose for part in moved.flatten(0, 1).split(250)])
        vectors = found.view(len(moved), 11, *found.shape[1:])  # (B, S, classes, 16)
        own = vectors[torch.arange(len(moved)), :, batch.labels]
        scores[factor] = {"class": _score(own), "all": _score(vectors.flatten(2))}
    return {"units_at_zero": float((pose == 0).double().mean()), "compactness": scores}


def _score(vectors: torch.Tensor) -> dict[str, float]:
    shares = variance_shares(vectors)
    shares = shares[shares.isfinite().all(1)]
    return {"score": float(divergence(shares).mean()), "score_of_mean_shares": float(divergence(shares.mean(0)))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    about = "compactness with and without a ReLU on the units, over 16 and over 160 units"
    content = {"about": about, "size": "laptop", "batch_size": BATCH, "environment": describe_environment()}
    rows = []
    for row in units(given.seeds, given.epochs):
        print(row, flush=True)
        rows.append(row)
        write_json(given.out / "gu2021-units.json", content | {"rows": rows})


if __name__ == "__main__":
    main()
