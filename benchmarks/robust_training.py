"""Capsules against plain networks that were trained to be robust: accuracy under attack after adversarial training.

Trains laptop-size networks on 30,000 digits of MNIST, clean and perturbed by PGD, with several seeds and on one thread,
and attacks them with PGD and Square; the sanity checks are run, too. Run: python -m benchmarks.robust_training
[NETWORK ...]; adds to results/robustness/trained/evaluation.json, from which scripts/robustness_page.py makes a part of
docs/robustness.md.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch

from torchcaps.data import load_dataset
from torchcaps.environment import describe_environment
from torchcaps.evaluate import attack_model, evaluate_run
from torchcaps.files import read_json, write_json
from torchcaps.train import fit_run, load, new_run, resolve

TARGET = Path("results/robustness/trained/evaluation.json")
# Peaks are those of profile desk and of docs/all-routings.md. The last two share their backbone.
BACKBONE = {"schedule": "one-cycle:0.01:0.1", "optimizer": "muon"}
NETWORKS: dict[str, dict[str, Any]] = {
    "capsnet": {"schedule": "one-cycle:0.003:0.1"},
    "matrix-capsnet": {
        "schedule": "one-cycle:0.01:0.1",
        "clip_norm": 1.0,
        "options": {"normalization": "rms", "routing_options": {"iterations": 2, "variance_floor": 1.0}},
    },
    "convnet-avg": {"schedule": "one-cycle:0.004:0.1"},
    "sr-capsnet": BACKBONE | {"options": {"trunk": "convnet7"}},
    "resnet20": BACKBONE | {"options": {"trunk": "convnet7", "head": "fc"}},
}
SHARED = {"size": "laptop", "data": "mnist", "augmentation": "", "epochs": 1, "batch_size": 64}
SHARED |= {"train_images": 30_000, "device": "cpu"}
TRAINED = {"clean images": None, "PGD images": "pgd:0.1:3"}
SEEDS = 3
ATTACKS, EPSILONS, IMAGES = ("pgd", "square"), (0.1, 0.2), 300
# Fewer than its default of 1,000: it is the check of the white-box attack.
OPTIONS = {"square": {"queries": 150}}


def measure(network: str, trained_on: str, seed: int) -> dict[str, Any]:
    """Train a network and attack it."""
    settings = SHARED | NETWORKS[network] | {"adversarial": TRAINED[trained_on]}
    with tempfile.TemporaryDirectory() as folder:
        run = new_run(resolve(model=network, seed=seed, **settings), Path(folder) / "run")
        fit_run(run)
        result = evaluate_run(run)
        attacked = attack_model(
            load(run.path),
            load_dataset("mnist", "test"),
            ATTACKS,
            EPSILONS,
            images_used=IMAGES,
            seed=seed,
            options=OPTIONS,
        )
    del attacked["environment"]
    kept = {key: result[key] for key in ("test_accuracy", "validation_accuracy", "parameters", "training_seconds")}
    row = {"network": network, "trained_on": trained_on, "seed": seed, "settings": settings}
    return row | kept | {"attacked": attacked, "commit": describe_environment()["commit"]}


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    shared = {"attacks": list(ATTACKS), "epsilons": list(EPSILONS), "images": IMAGES, "options": OPTIONS}
    for seed in range(SEEDS):
        for network in names or NETWORKS:
            for trained_on in TRAINED:
                runs = read_json(TARGET)["runs"] if TARGET.is_file() else []
                key = (network, trained_on, seed)
                if any((run["network"], run["trained_on"], run["seed"]) == key for run in runs):
                    continue
                run = measure(*key)
                runs = read_json(TARGET)["runs"] if TARGET.is_file() else []
                write_json(TARGET, {"settings": shared, "runs": [*runs, run], "environment": describe_environment()})
                left = [f"{100 * row['accuracy']:.1f}" for row in run["attacked"]["attacks"]]
                print(*key, f"{100 * run['test_accuracy']:.2f} %, under attack {left}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NETWORK")
    main(parser.parse_args().names)
