"""Accuracy on test images, affine digits, novel viewpoints and generated digits; learning curve."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import torch

from torchcaps.data import Augmentation, TensorImages, datasets
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate import evaluate_run
from torchcaps.evaluate.acgan import EPOCHS, PER_DIGIT, SIZES, generate, train_acgan
from torchcaps.evaluate.affine import affine_sets
from torchcaps.evaluate.clean import check_digits, first_images, multicrop_scores, test_images
from torchcaps.evaluate.viewpoint import FAMILIAR, measure_viewpoints, viewpoint_sets
from torchcaps.models import Ensemble
from torchcaps.reproduce.measures.registry import MeasureInput, Measurement, register_measure
from torchcaps.train import RunFolder, evaluate_accuracy, load, read_validation_metrics
from torchcaps.train.splits import training_splits

CHOSEN = "of the checkpoint that validation images chose"


@register_measure("test-accuracy", "%", f"accuracy on the test images {CHOSEN}")
def accuracy(subject: MeasureInput, images: int | None = None) -> Measurement:
    """Accuracy; an image with two labels counts if the two highest scores are its labels."""
    share, count = _tested(subject.run, images)
    return Measurement(100 * share, count)


@register_measure("test-error", "%", f"wrong answers on the test images {CHOSEN}")
def error(subject: MeasureInput, images: int | None = None) -> Measurement:
    share, count = _tested(subject.run, images)
    return Measurement(100 * (1 - share), count)


@register_measure("train-accuracy", "%", f"accuracy on training images as the network was shown them, {CHOSEN}")
def train_accuracy(subject: MeasureInput, images: int = 10_000) -> Measurement:
    """Accuracy on the first ``images`` training images, without those for validation, each augmented once."""
    config = subject.run.config()
    training, _ = training_splits(config)
    augment, generator = Augmentation(config.augmentation), torch.Generator().manual_seed(0)
    batches = [training.batch(part) for part in torch.arange(min(images, len(training))).split(1000)]
    shown = TensorImages(
        torch.cat([augment(batch.images, generator) for batch in batches]),
        torch.cat([batch.labels for batch in batches]),
        training.class_names,
    )
    found = evaluate_accuracy(load(subject.run.path), shown)
    return Measurement(100 * found.accuracy, found.images)


@register_measure("multicrop-error", "%", f"wrong answers by the mean scores of 13 crops of each test image, {CHOSEN}")
def multicrop_error(subject: MeasureInput, images: int | None = None) -> Measurement:
    found = evaluate_accuracy(
        load(subject.run.path), test_images(_limited(subject.run, images)), scores=multicrop_scores
    )
    return Measurement(100 * (1 - found.accuracy), found.images)


@register_measure(
    "learning-curve",
    "%",
    "wrong answers on the validation images against the step of training; the test images are not looked at meanwhile",
)
def learning_curve(subject: MeasureInput, early: float | None = None) -> Measurement:
    """The value is the last error, or with ``early`` the mean over that share of the curve from its start.

    Validations are evenly spaced, so that the mean is the area under that part of the curve.
    """
    if early is not None and not 0 < early <= 1:
        raise TorchcapsError(f"early is a share above 0 and up to 1, got {early:g}")
    lines = read_validation_metrics(subject.run.metrics_file)
    curve = [[line.step, 100 * (1 - line.accuracy)] for line in lines]
    details = {"curve": curve, "split": "validation"}
    if early is None:
        return Measurement(curve[-1][1], details=details)
    first = [error for _, error in curve[: math.ceil(early * len(curve))]]
    return Measurement(sum(first) / len(first), details=details | {"early": early, "last": curve[-1][1]})


@register_measure(
    "ensemble-accuracy", "%", "accuracy on the test images of the mean scores of several networks, which differ by seed"
)
def ensemble_accuracy(subject: MeasureInput, images: int | None = None) -> Measurement:
    """choi2019, Table 1: the run and all its other members."""
    runs = [subject.run, *subject.others.values()]
    if len(runs) == 1:
        raise TorchcapsError("an ensemble needs further members: give the cell a number of members")
    members = [load(run.path) for run in runs]
    found = evaluate_accuracy(Ensemble(members), test_images(_limited(subject.run, images)))
    return Measurement(100 * found.accuracy, found.images, {"members": len(members)})


def _tested(run: RunFolder, images: int | None) -> tuple[float, int]:
    """Return accuracy and number of images; the result of the run is reused if it has as many images."""
    config = _limited(run, images)
    available = datasets.get(config.data).splits["test"]
    wanted = available if config.test_images is None else min(config.test_images, available)
    result: dict[str, Any] = run.result("test_accuracy") if run.result_file.is_file() else {}
    if result.get("test_images") != wanted and images is None:
        result = evaluate_run(run)
    if result.get("test_images") == wanted:
        return result["test_accuracy"], wanted
    found = evaluate_accuracy(load(run.path), test_images(config))
    return found.accuracy, found.images


def _limited(run: RunFolder, images: int | None) -> Any:
    """Return the configuration of the run, with another number of test images if given."""
    config = run.config()
    return config if images is None else config.model_copy(update={"test_images": images})


@register_measure(
    "affnist-accuracy", "%", "accuracy on MNIST's test digits under affine change, of a model trained on upright ones"
)
def affnist_accuracy(subject: MeasureInput, images: int | None = None, variant: str = "affnist") -> Measurement:
    """gu2021, section 3.1; choi2019, section 4.1; ``variant`` is one of ``evaluate.affine.VARIANTS``."""
    model = load(subject.run.path)
    sets = affine_sets(model, subject.run.config().data, images, variant)
    found = evaluate_accuracy(model, sets.changed)
    return Measurement(100 * found.accuracy, found.images, {"about": sets.about})


@register_measure("viewpoint-error", "%", "wrong answers on toys from sides that training did not show")
def viewpoint_error(subject: MeasureInput, images: int | None = None) -> Measurement:
    """hinton2018, section 5.1."""
    return _viewpoint_error(subject, "novel", images)


@register_measure("familiar-error", "%", "wrong answers on toys that are new, from sides that training showed")
def familiar_error(subject: MeasureInput, images: int | None = None) -> Measurement:
    return _viewpoint_error(subject, FAMILIAR, images)


def _viewpoint_error(subject: MeasureInput, sides: str, images: int | None) -> Measurement:
    model, data = load(subject.run.path), subject.run.config().data
    found: dict[str, Any] = measure_viewpoints(model, *viewpoint_sets(data), images_used=images)
    curve = [[int(degree), 100 * (1 - share)] for degree, share in found["by_degree"][sides].items()]
    return Measurement(100 * found[f"{sides}_error"], found[f"{sides}_images"], {"by_degree": sorted(curve)})


@register_measure(
    "acgan-error",
    "%",
    "wrong answers on digits drawn by an AC-GAN after an epoch of its training; each seed has a GAN of its own",
)
def acgan_error(subject: MeasureInput, epoch: int = EPOCHS, images: int = 10 * PER_DIGIT) -> Measurement:
    """chen2019, Table 3."""
    run = subject.run
    settings = replace(SIZES[run.config().size], seed=subject.seed)
    if not 1 <= epoch <= EPOCHS:
        raise TorchcapsError(f"the AC-GAN is evaluated after epochs 1 to {EPOCHS}, got {epoch}")
    model = load(run.path)
    check_digits(model, run.config().data, "generated digits")
    train_acgan(settings.folder(), settings, epoch)
    drawn = generate(settings.folder(), epoch, images)
    found = evaluate_accuracy(model, first_images(model, drawn, None))
    return Measurement(100 * (1 - found.accuracy), found.images, {"gan": asdict(settings)})
