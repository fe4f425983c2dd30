"""Peak learning rates for the trainings of profile desk, chosen on validation images.

For one training of each kind, a learning rate range test suggests a peak. Short trainings with a one-cycle schedule
start there and go up by factors of two as long as the accuracy on up to 2,000 validation images grows, otherwise once
down. Run: python -m benchmarks.tuned_rates [KIND ...] [--steps 200]; adds to results/learning/rates.json, which
docs/performance.md shows.
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
from torchcaps.train.tune_rate import WARMUP, tune_rate

TARGET = Path("results/learning/rates.json")
VALIDATED = 2_000
MOST_TRIALS = 6
# Kind of training: the training of a spec that stands for it.
KINDS = {
    "CapsNet, MNIST": "gu2021/capsnet-mnist",
    "CapsNet, 40x40": "gu2021/capsnet-matched",
    "CapsNet, overlaid digits": "gu2021/overlaid",
    "CapsNet-NoR, 40x40": "gu2021/capsnet-nor-matched",
    "Aff-CapsNet, 40x40": "gu2021/aff-capsnet-matched",
    "Aff-CapsNet-DR, 40x40": "gu2021/aff-capsnet-dr-matched",
    "ConvNet-Avg, 40x40": "gu2021/convnet-avg-narrow-matched",
    "ConvNet-FC, 40x40": "gu2021/convnet-fc-matched",
    "ConvNet-R, MNIST": "gu2021/convnet-r-mnist",
    "ConvNet-CR, MNIST": "gu2021/convnet-cr-mnist",
    "G-CapsNet FC, MNIST": "chen2019/fc-mnist",
    "G-CapsNet Conv, MNIST": "chen2019/conv-mnist",
    "CNN, MNIST": "chen2019/cnn-mnist",
    "LeNet, MNIST": "chen2019/lenet",
    "G-CapsNet FC, CIFAR-10": "chen2019/fc-cifar10",
    "G-CapsNet Conv, CIFAR-10": "chen2019/conv-cifar10",
    "G-CapsNet Multi, CIFAR-10": "chen2019/multi-cifar10",
    "CNN, CIFAR-10": "chen2019/cnn-cifar10",
    "AR CapsNet, MNIST": "choi2019/ar-mnist",
    "AR CapsNet, 40x40": "choi2019/ar-affnist",
    "AR CapsNet, CIFAR-10": "choi2019/ar-cifar10-4-16",
    "Discriminative L2, MNIST": "yang2021/mnist-l2",
    "Discriminative L1, MNIST": "yang2021/mnist-l1",
    "Discriminative L2, CIFAR-10": "yang2021/cifar10-l2-fc",
    "Matrix capsules, smallNORB": "hinton2018/iterations-3",
    "Matrix capsules, MNIST": "hinton2018/mnist",
    "CNN, smallNORB": "hinton2018/cnn",
    "Efficient-CapsNet, MNIST": "mazzia2021/efficient",
    "SR-CapsNet, smallNORB": "hahn2019/azimuth-self",
    "ResNet-20, CIFAR-10": "hahn2019/cifar10-average",
    "VB-CapsNet, smallNORB": "ribeiro2020/three-layers",
}


def short_accuracy(config: RunConfig, peak: float, steps: int) -> float | None:
    """Validation accuracy after a short training; None if it diverged."""
    changes = {"schedule": f"one-cycle:{peak:g}:{WARMUP:g}", "learning_rate": None, "stop_at_accuracy": None}
    short = resolve(**config.model_dump() | changes | {"steps": steps, "epochs": 1000})
    _, validation = training_splits(short)
    few = Subset(validation, torch.arange(min(VALIDATED, len(validation))))
    try:
        found: float = measure_curve(short, few, evaluations=1)["points"][-1]["accuracy"]
    except TorchcapsError:
        return None
    return found


def choose_peak(config: RunConfig, steps: int) -> dict[str, Any]:
    """The suggested peak, the validation accuracies around it, and the best of them.

    Where the range test can suggest nothing, the peak of profile desk is where the search starts.
    """
    try:
        suggested = tune_rate(config).peak
    except TorchcapsError:
        suggested = None
    peak = suggested or config.learning_rate
    trials = {peak: short_accuracy(config, peak, steps)}
    for _ in range(MOST_TRIALS - 2):
        peak *= 2
        trials[peak] = short_accuracy(config, peak, steps)
        if (trials[peak] or 0.0) <= (trials[peak / 2] or 0.0):
            break
    best = max(trials, key=lambda each: trials[each] or 0.0)
    if best == min(trials):
        trials[best / 2] = short_accuracy(config, best / 2, steps)
        best = max(trials, key=lambda each: trials[each] or 0.0)
    accuracies = {f"{peak:g}": trials[peak] for peak in sorted(trials)}
    return {"suggested": suggested, "validation_accuracy": accuracies, "peak": float(f"{best:g}"), "steps": steps}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", help=f"default: all of {', '.join(KINDS)}")
    parser.add_argument("--steps", type=int, default=200, help="of each training")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for kind in given.kinds or KINDS:
        paper, _, name = KINDS[kind].partition("/")
        config = training_job(load_spec(paper), name, "desk", 0).config
        rows = read_json(TARGET)["rows"] if TARGET.is_file() else []
        if any(row["kind"] == kind and row["steps"] == given.steps for row in rows):
            print(f"{kind}: measured already", flush=True)
            continue
        row = {"kind": kind, "training": KINDS[kind], "batch_size": config.batch_size}
        row |= choose_peak(config, given.steps)
        write_json(TARGET, {"rows": [*rows, row], "environment": describe_environment()})
        print(row, flush=True)


if __name__ == "__main__":
    main()
