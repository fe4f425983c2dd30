"""Images that training did not show: digits under affine change, toys from novel sides."""

from __future__ import annotations

from typing import Any

from torchcaps.errors import TorchcapsError
from torchcaps.evaluate.affine import PLACED, affine_sets
from torchcaps.evaluate.viewpoint import FAMILIAR, measure_viewpoints, viewpoint_sets
from torchcaps.reproduce.measures.registry import Measured, Subject, measure_named
from torchcaps.train import load, measure


@measure_named(
    "affnist-accuracy", "%", "accuracy on MNIST's test digits under affine change, of a model trained on upright ones"
)
def affnist_accuracy(subject: Subject, images: int | None = None) -> Measured:
    """gu2021, section 3.1; choi2019, section 4.2."""
    data = subject.run.config().data
    if data not in PLACED:
        raise TorchcapsError(f"affNIST is for models trained on digits on 40x40, not on {data}: train on mnist-40")
    model = load(subject.run.path)
    sets = affine_sets(model, data, images)
    found = measure(model, sets.changed)
    return Measured(100 * found.accuracy, found.images, {"about": sets.about})


@measure_named("viewpoint-error", "%", "wrong answers on toys from sides that training did not show")
def viewpoint_error(subject: Subject, images: int | None = None) -> Measured:
    """hinton2018, section 5.2."""
    return _seen_from(subject, "novel", images)


@measure_named("familiar-error", "%", "wrong answers on toys that are new, from sides that training showed")
def familiar_error(subject: Subject, images: int | None = None) -> Measured:
    return _seen_from(subject, FAMILIAR, images)


def _seen_from(subject: Subject, sides: str, images: int | None) -> Measured:
    model, data = load(subject.run.path), subject.run.config().data
    found: dict[str, Any] = measure_viewpoints(model, *viewpoint_sets(data), images_used=images)
    curve = [[int(degree), 100 * (1 - share)] for degree, share in found["by_degree"][sides].items()]
    return Measured(100 * found[f"{sides}_error"], found[f"{sides}_images"], {"by_degree": sorted(curve)})
