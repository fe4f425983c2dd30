"""Accuracy on a run's own test images, its learning curve, and the size of its network."""

from __future__ import annotations

from typing import Any

from torchcaps.data import datasets
from torchcaps.evaluate import evaluate_run
from torchcaps.evaluate.clean import multicrop_scores, test_images
from torchcaps.reproduce.measures.registry import Measured, Subject, measure_named
from torchcaps.train import RunFolder, load, measure, validation_lines

CHOSEN = "of the checkpoint that validation images chose"


@measure_named("test-accuracy", "%", f"accuracy on the test images {CHOSEN}")
def accuracy(subject: Subject, images: int | None = None) -> Measured:
    """Right answers; where an image has two labels, the two highest scores must be them."""
    share, count = _tested(subject.run, images)
    return Measured(100 * share, count)


@measure_named("test-error", "%", f"wrong answers on the test images {CHOSEN}")
def error(subject: Subject, images: int | None = None) -> Measured:
    share, count = _tested(subject.run, images)
    return Measured(100 * (1 - share), count)


@measure_named("multicrop-error", "%", f"wrong answers by the mean scores of 13 crops of each test image, {CHOSEN}")
def multicrop_error(subject: Subject, images: int | None = None) -> Measured:
    found = measure(load(subject.run.path), test_images(_limited(subject.run, images)), scores=multicrop_scores)
    return Measured(100 * (1 - found.accuracy), found.images)


@measure_named(
    "learning-curve",
    "%",
    "wrong answers on the validation images against the step of training; the test images are not looked at meanwhile",
)
def learning_curve(subject: Subject) -> Measured:
    lines = validation_lines(subject.run.metrics_file)
    curve = [[line.step, 100 * (1 - line.accuracy)] for line in lines]
    return Measured(curve[-1][1], details={"curve": curve, "split": "validation"})


@measure_named("parameters", "count", "trained parameters of the network in the size of the paper, decoder included")
def parameters(subject: Subject) -> Measured:
    model = subject.run.config().model_copy(update={"size": "paper"}).build_model()
    return Measured(sum(parameter.numel() for parameter in model.parameters()))


def _tested(run: RunFolder, images: int | None) -> tuple[float, int]:
    """Share of right answers and number of images, from the run's result where that is about as many."""
    config = _limited(run, images)
    available = datasets.get(config.data).splits["test"]
    wanted = available if config.test_images is None else min(config.test_images, available)
    result: dict[str, Any] = run.result("test_accuracy") if run.result_file.is_file() else {}
    if result.get("test_images") != wanted and images is None:
        result = evaluate_run(run)
    if result.get("test_images") == wanted:
        return result["test_accuracy"], wanted
    found = measure(load(run.path), test_images(config))
    return found.accuracy, found.images


def _limited(run: RunFolder, images: int | None) -> Any:
    """The run's settings, with another number of test images if one is given."""
    config = run.config()
    return config if images is None else config.model_copy(update={"test_images": images})
