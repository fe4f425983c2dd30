"""Pilots of profile desk: what accuracy one training of each kind reaches, and in how many core-seconds.

A pilot trains a training of a spec as profile desk has it, or with changes, once, on one thread, and is evaluated on
up to 6,000 validation images along the way. Run: python -m benchmarks.pilots [NAME ...] [--list]; adds to
results/learning/pilots.json, which docs/performance.md shows.
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
from torchcaps.reproduce.spec import load_spec
from torchcaps.train import RunConfig, resolve, training_splits

TARGET = Path("results/learning/pilots.json")
VALIDATED = 6_000
# What a pilot is told apart by, and what the page shows of it.
RECIPE = (
    "epochs",
    "steps",
    "train_images",
    "batch_size",
    "optimizer",
    "schedule",
    "weight_decay",
    "options",
    "augmentation",
)


def peak(rate: float, epochs: int) -> dict[str, Any]:
    """A one-cycle schedule with this peak, for so many epochs."""
    return {"schedule": f"one-cycle:{rate:g}:0.1", "epochs": epochs}


MUON = {"optimizer": "muon"}
# The paper's size of hahn2019's networks.
SELF_ROUTING = {"width": 16, "types": 32}
AVERAGE = {"width": 16, "head": "average"}
# Training of a spec, and what differs from its desk profile.
PILOTS: dict[str, tuple[str, dict[str, Any]]] = {
    "capsnet-mnist": ("gu2021/capsnet-mnist", {}),
    "convnet-cr-mnist": ("gu2021/convnet-cr-mnist", {}),
    "g-capsnet-fc-mnist": ("chen2019/fc-mnist", {"epochs": 3}),
    "capsnet-40": ("gu2021/capsnet-matched", peak(0.003, 4)),
    "capsnet-40, peak 0.0015": ("gu2021/capsnet-matched", peak(0.0015, 4)),
    "convnet-avg-40": ("gu2021/convnet-avg-narrow-matched", peak(0.004, 4)),
    "convnet-avg-40, peak 0.01": ("gu2021/convnet-avg-narrow-matched", peak(0.01, 4)),
    "convnet-avg-40, 24 epochs": ("gu2021/convnet-avg-narrow-matched", peak(0.004, 24)),
    "aff-capsnet-40": ("gu2021/aff-capsnet-matched", peak(0.003, 4)),
    "aff-capsnet-40, peak 0.006": ("gu2021/aff-capsnet-matched", peak(0.006, 4)),
    "capsnet-40, Muon": ("gu2021/capsnet-matched", MUON | peak(0.004, 6)),
    "convnet-avg-40, Muon": ("gu2021/convnet-avg-narrow-matched", MUON | peak(0.012, 5)),
    "aff-capsnet-40, Muon": ("gu2021/aff-capsnet-matched", MUON | peak(0.006, 6)),
    "capsnet-overlaid": ("gu2021/overlaid", {}),
    "capsnet-overlaid, Muon": ("gu2021/overlaid", MUON | peak(0.006, 1)),
    "g-capsnet-fc-cifar10": ("chen2019/fc-cifar10", {"epochs": 10}),
    "g-capsnet-fc-cifar10, Muon": ("chen2019/fc-cifar10", MUON | peak(0.004, 10)),
    "g-capsnet-fc-cifar10, Muon, peak 0.002": ("chen2019/fc-cifar10", MUON | peak(0.002, 4)),
    "dynamic-cifar10, Muon, peak 0.002": ("chen2019/capsnet-cifar10", MUON | peak(0.002, 4)),
    "g-capsnet-conv-cifar10, Muon, peak 0.002": ("chen2019/conv-cifar10", MUON | peak(0.002, 4)),
    "sr-capsnet-cifar10, paper size, Muon": (
        "hahn2019/cifar10-self",
        MUON | peak(0.01, 10) | {"options": SELF_ROUTING},
    ),
    "resnet20-cifar10, paper size, Muon": ("hahn2019/cifar10-average", MUON | peak(0.01, 10) | {"options": AVERAGE}),
    "efficient-capsnet": ("mazzia2021/efficient", {}),
    "ar-capsnet-cifar10, Muon": ("choi2019/ar-cifar10-4-16-moved", MUON | peak(0.01, 12)),
    "ar-capsnet-cifar10": ("choi2019/ar-cifar10-4-16", {"epochs": 8}),
}


def pilot_config(name: str) -> RunConfig:
    """The settings of a pilot. Training to a given accuracy would end it early, so it never does."""
    training, changes = PILOTS[name]
    paper, _, title = training.partition("/")
    config = training_job(load_spec(paper), title, "desk", 0).config
    return resolve(**config.model_dump() | {"learning_rate": None, "stop_at_accuracy": None} | changes)


def run_pilot(config: RunConfig) -> dict[str, Any]:
    """The accuracy on validation images twice in each epoch, or four times in a short training."""
    _, validation = training_splits(config)
    evaluated = Subset(validation, torch.arange(min(VALIDATED, len(validation))))
    try:
        return measure_curve(config, evaluated, evaluations=4 if config.steps else 2 * config.epochs)
    except TorchcapsError as error:
        return {"seed": config.seed, "points": [], "error": str(error)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--list", action="store_true", help="print the pilots and exit")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.names or PILOTS:
        config = pilot_config(name)
        recipe = {key: config.model_dump(mode="json")[key] for key in RECIPE}
        rows = read_json(TARGET)["rows"] if TARGET.is_file() else []
        key = {"name": name, "training": PILOTS[name][0], "recipe": recipe}
        environment = describe_environment()
        if given.list or any(all(row[part] == key[part] for part in key) for row in rows):
            print(name, *key.values(), flush=True)
            continue
        found = run_pilot(config)
        rows = read_json(TARGET)["rows"] if TARGET.is_file() else []
        row = key | found | {"commit": environment["commit"]}
        write_json(TARGET, {"rows": [*rows, row], "environment": environment})
        print(name, found.get("error") or found["points"][-1], flush=True)


if __name__ == "__main__":
    main()
