"""Benchmark learning: images and core-seconds until a model reaches a target accuracy.

Each case trains one model on one dataset with two recipes, old and new, and records the test accuracy along the way.
The curve selects nothing. Of the new recipes, those of matrix capsules were chosen on validation images (for smallNORB
on toys that are not trained on), except for the peak for smallNORB. That peak and those for CapsNet and ConvNet-Avg
come from exploratory runs that were judged on test images; those for AR CapsNet and G-CapsNet are untested.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import matplotlib
import torch
from matplotlib import pyplot as plt
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

from torchcaps.bench.growth import COLORS, INK, STYLE
from torchcaps.bench.timing import num_threads
from torchcaps.data import ImageSet, Subset, load_dataset
from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.files import atomic_path, read_json
from torchcaps.models import Model
from torchcaps.progress import error_console
from torchcaps.train import Callback, MetricRow, RunConfig, evaluate_accuracy, fit, resolve, training_splits
from torchcaps.train.sampler import steps_per_epoch

matplotlib.use("agg")

Row = dict[str, Any]
RECIPE_COLORS = {"old": COLORS["plain"], "new": COLORS["torchcaps"]}
MOST_TESTED = 5_000  # images of each evaluation
EVALUATIONS = 20  # of one training
FEW = 200  # validation images; these trainings keep no checkpoint
# Settings of a config that describe the model or the machine, which torchcaps.fit does not take.
NOT_FITTED = {"model", "size", "options", "data", "image_shape", "class_names", "train_images", "test_images"}
NOT_FITTED |= {"validation", "stop_on", "stop_at_accuracy", "devices", "nodes", "strategy"}


@dataclass(frozen=True)
class LearningCase:
    """A model and a dataset with the training recipes to compare; ``targets`` are accuracies."""

    title: str
    targets: tuple[float, ...]
    settings: dict[str, Any]  # of both recipes
    old: dict[str, Any]
    new: dict[str, Any]

    def recipes(self) -> dict[str, dict[str, Any]]:
        """Settings of both recipes."""
        return {"old": self.settings | self.old, "new": self.settings | self.new}


@dataclass(frozen=True)
class Point:
    """A moment of a training: images seen, core-seconds spent in training steps, and accuracy."""

    images: int
    core_seconds: float
    accuracy: float


class CurveRecorder(Callback):
    """Evaluate a model at regular intervals, and measure the CPU time of the training steps alone."""

    def __init__(
        self, model: Model, evaluated: ImageSet, *, train_images: int, batch_size: int, steps: int, evaluations: int
    ) -> None:
        self.model, self.evaluated, self.train_images, self.batch_size = model, evaluated, train_images, batch_size
        self.due = {round(steps * number / evaluations) for number in range(1, evaluations + 1)}
        self.points: list[Point] = []
        self.core_seconds, self.since = 0.0, time.process_time()

    def on_step(self, row: MetricRow) -> None:
        self.core_seconds += time.process_time() - self.since
        if row.step in self.due:
            found = evaluate_accuracy(self.model, self.evaluated).accuracy
            epochs, position = divmod(row.step, steps_per_epoch(self.train_images, self.batch_size))
            images = epochs * self.train_images + position * self.batch_size
            self.points.append(Point(images, round(self.core_seconds, 2), found))
        self.since = time.process_time()

    def on_validation(self, row: MetricRow, model: Model) -> None:
        self.since = time.process_time()  # the validation is not part of a step


def measure_curve(
    config: RunConfig,
    evaluated: ImageSet | None = None,
    evaluations: int = EVALUATIONS,
    change: Callable[[Model], None] | None = None,
) -> Row:
    """Train a model on one thread; return its accuracy against images and core-seconds.

    Args:
        config: the training.
        evaluated: images of the curve; None: up to 5,000 test images, evenly spaced.
        evaluations: number of points of the curve.
        change: changes the model before it is trained, for a trial of something that is no setting.
    """
    training, validation = training_splits(config)
    if evaluated is None:
        whole = load_dataset(config.data, "test")
        evaluated = Subset(whole, torch.arange(0, len(whole), -(-len(whole) // MOST_TESTED)))
    per_epoch = steps_per_epoch(len(training), config.batch_size)
    steps = min(config.epochs * per_epoch, config.steps or config.epochs * per_epoch)
    with num_threads(1):
        torch.manual_seed(config.seed)
        model = config.build_model()
        if change is not None:
            change(model)
        recorder = CurveRecorder(
            model,
            evaluated,
            train_images=len(training),
            batch_size=config.batch_size,
            steps=steps,
            evaluations=min(evaluations, steps),
        )
        few = Subset(validation, torch.arange(min(FEW, len(validation))))
        fit(model, training, few, callbacks=[recorder], **config.model_dump(exclude=NOT_FITTED))
    return {
        "seed": config.seed,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "evaluated_images": len(evaluated),
        "points": [asdict(point) for point in recorder.points],
    }


RANDOM = {"start": "random"}
NORMALIZED = {"normalization": "rms", "routing_options": {"iterations": 2, "variance_floor": 1.0}}
CASES = {
    "matrix-capsnet-mnist": LearningCase(
        "matrix-capsnet on MNIST",
        (0.98, 0.99),
        {"model": "matrix-capsnet", "data": "mnist", "augmentation": "", "epochs": 5},
        {"options": RANDOM},
        {"options": NORMALIZED, "schedule": "one-cycle:0.01:0.1", "clip_norm": 1.0},
    ),
    "matrix-capsnet-smallnorb": LearningCase(
        "matrix-capsnet on smallNORB (JPEG)",
        (0.85, 0.90, 0.93),
        {"model": "matrix-capsnet", "data": "smallnorb-jpeg", "epochs": 10, "validation": 0.01},
        {"options": RANDOM},
        {"options": NORMALIZED, "schedule": "one-cycle:0.006:0.1", "clip_norm": 1.0},
    ),
    "capsnet-mnist": LearningCase(
        "capsnet on MNIST",
        (0.99, 0.992),
        {"model": "capsnet", "data": "mnist", "epochs": 3},
        {},
        {"schedule": "one-cycle:0.003:0.1"},
    ),
    "ar-capsnet-mnist": LearningCase(
        "ar-capsnet on MNIST",
        (0.99, 0.992),
        {"model": "ar-capsnet", "data": "mnist", "epochs": 3},
        {},
        {"schedule": "one-cycle:0.004:0.1"},
    ),
    "g-capsnet-fc-mnist": LearningCase(
        "g-capsnet-fc on MNIST",
        (0.99, 0.992),
        {"model": "g-capsnet-fc", "data": "mnist", "epochs": 3},
        {},
        {"schedule": "one-cycle:0.003:0.1"},
    ),
    "convnet-avg-mnist": LearningCase(
        "convnet-avg on MNIST",
        (0.99, 0.992),
        {"model": "convnet-avg", "data": "mnist", "augmentation": "", "epochs": 5, "batch_size": 64},
        {},
        {"schedule": "one-cycle:0.004:0.1"},
    ),
}


def read_learning(path: Path) -> list[Row]:
    """Read the rows of an earlier measurement; none if there is no file."""
    if not path.is_file():
        return []
    found = read_json(path)
    rows = found.get("rows") if isinstance(found, dict) else None
    needed = {"case", "recipe", "settings", "seed", "points"}
    if not isinstance(rows, list) or not all(isinstance(row, dict) and needed <= row.keys() for row in rows):
        raise TorchcapsError(f"{path} was not written by 'torchcaps bench learning': choose another --out")
    return [row for row in rows if row["case"] in CASES]


def measure_learning(
    names: Iterable[str], seeds: int, *, known: Sequence[Row] = (), train_images: int | None = None
) -> Iterator[list[Row]]:
    """Train every case with both recipes and several seeds; yield all rows so far after each training.

    Args:
        names: of :data:`CASES`.
        seeds: trainings of each recipe.
        known: rows of an earlier measurement; a training with the same settings and seed is not repeated.
        train_images: use only this many training images, for a quick trial.
    """
    names = list(names)
    for name in names:
        if name not in CASES:
            raise unknown_name("case", name, CASES)
    rows = list(known)
    for name in names:
        for recipe, settings in CASES[name].recipes().items():
            chosen = settings | ({"train_images": train_images} if train_images else {})
            for seed in range(seeds):
                key = {"case": name, "recipe": recipe, "settings": chosen, "seed": seed}
                if not any(all(row[part] == key[part] for part in key) for row in rows):
                    error_console().print(f"{CASES[name].title}, {recipe} recipe, seed {seed}")
                    rows.append(key | measure_curve(resolve(**chosen, seed=seed)))
                    yield rows


def summarize_learning(rows: Sequence[Row]) -> list[Row]:
    """One row per case, recipe and target: means over the seeds that reached it, and the accuracy at the end."""
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["case"], row["recipe"], str(row["settings"])), []).append(row)
    summary = []
    for (case, recipe, _), runs in groups.items():
        ends = [run["points"][-1] for run in runs]
        for target in CASES[case].targets:
            reached = [point for run in runs if (point := first_reaching(run["points"], target))]
            summary.append(
                {
                    "case": case,
                    "recipe": recipe,
                    "target": target,
                    "reached": len(reached),
                    "seeds": len(runs),
                    "images": mean(point["images"] for point in reached) if reached else None,
                    "core_seconds": mean(point["core_seconds"] for point in reached) if reached else None,
                    "final_images": ends[0]["images"],
                    "final_core_seconds": mean(end["core_seconds"] for end in ends),
                    "final_accuracy": mean(end["accuracy"] for end in ends),
                }
            )
    return summary


def first_reaching(points: Sequence[Row], target: float) -> Row | None:
    """Return the first point with the target accuracy.

    >>> first_reaching([{"images": 32, "accuracy": 0.5}, {"images": 64, "accuracy": 0.9}], 0.8)
    {'images': 64, 'accuracy': 0.9}
    """
    return next((point for point in points if point["accuracy"] >= target), None)


def draw_learning(rows: Sequence[Row], target: Path) -> None:
    """Write an SVG: for each case, test error against images seen, with a line per training."""
    cases = list(dict.fromkeys(row["case"] for row in rows))
    with plt.rc_context(STYLE):  # type: ignore[arg-type]
        columns = min(3, len(cases))
        lines = -(-len(cases) // columns)
        figure, grid = plt.subplots(lines, columns, figsize=(3.4 * columns, 2.8 * lines), squeeze=False, layout="tight")
        for plot in grid.flat[len(cases) :]:
            plot.set_visible(False)
        for plot, case in zip(grid.flat, cases, strict=False):
            for row in [row for row in rows if row["case"] == case]:
                label = row["recipe"] if row["seed"] == 0 else None
                thousands = [point["images"] / 1000 for point in row["points"]]
                errors = [max(100 * (1 - point["accuracy"]), 0.01) for point in row["points"]]
                plot.plot(thousands, errors, color=RECIPE_COLORS[row["recipe"]], lw=1, label=label)
            for wanted in CASES[case].targets:
                plot.axhline(100 * (1 - wanted), color=INK, lw=0.5, ls=":")
            plot.set(yscale="log", title=CASES[case].title, xlabel="thousand training images", ylabel="test error, %")
            plot.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            plot.yaxis.set_major_formatter(FormatStrFormatter("%g"))
            plot.yaxis.set_minor_formatter(NullFormatter())
            plot.grid(alpha=0.3)
            plot.legend(frameon=False, fontsize=7)
        with atomic_path(target) as temporary:
            figure.savefig(temporary, format="svg", transparent=True, metadata={"Date": None})
        plt.close(figure)
