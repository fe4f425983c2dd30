"""Measures of capsules: compactness, alignment, perturbed dimensions, decoding by another network, vote distances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchcaps.analysis import measure_alignment, measure_compactness, random_reference
from torchcaps.analysis.explainers import explain_decoding, explain_votes, perturbation_sheet
from torchcaps.analysis.explanation import ExplainInput, Explanation, sample_images, select_images
from torchcaps.analysis.perturbation import PerturbationRange
from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.evaluate.clean import test_images
from torchcaps.models import Model
from torchcaps.progress import progress_bar
from torchcaps.reproduce.measures.registry import MeasureInput, Measurement, register_measure
from torchcaps.train import RunFolder, load

IMAGES = 1000
AXES = {"rotation": "rotation", "x": "shift_x", "y": "shift_y"}  # transformations as choi2019 names them
TRANSFORMATIONS = [f"{axis}{sign}" for sign in "+-" for axis in AXES]


@register_measure(
    "compactness",
    "nats",
    "each dimension's share of the variance of the true class's capsule under one factor, as a divergence from equal "
    "shares; mean over test images",
)
def capsule_compactness(subject: MeasureInput, factor: str = "rotation", images: int = IMAGES) -> Measurement:
    """gu2021, section 3.3; ``score_of_mean_shares`` is the other reading, see analysis/sweeps.py."""
    found = _over_images(subject, measure_compactness, factor, images)
    score: dict[str, Any] = found["factors"][factor]
    return Measurement(score["score"], details=score | {"greatest": found["greatest"], "size": found["size"]})


@register_measure(
    "alignment-ratio",
    "ratio",
    "how far the changes of the true class's capsule under five strengths lie along one line; mean over test images",
)
def alignment_ratio(
    subject: MeasureInput, transformation: str = "rotation+", images: int = IMAGES, digit: int | None = None
) -> Measurement:
    """choi2019, Table 3; with ``digit``, of that digit's images alone."""
    if transformation not in TRANSFORMATIONS:
        raise unknown_name("transformation", transformation, TRANSFORMATIONS)
    factor = AXES[transformation[:-1]]
    found = _over_images(subject, measure_alignment, factor, images)
    ratio = found["ratio"][factor][transformation[-1]]
    value = ratio["mean"] if digit is None else ratio["by_class"].get(digit)
    details = ratio | {"by_class": {str(label): mean for label, mean in ratio["by_class"].items()}}
    return Measurement(value, details=details | {"random": found["random"]["own_size"], "images": found["images"]})


@register_measure("alignment-random", "ratio", "alignment ratio of random vectors; mean over a thousand sets of them")
def alignment_random(subject: MeasureInput, vectors: int = 5, dimensions: int = 32) -> Measurement:
    """choi2019, section 4.3: the value without any alignment."""
    found = random_reference(dimensions, count=vectors, seed=subject.seed)
    return Measurement(found["mean"], details={"sd": found["deviation"]})


@register_measure(
    "alignment-cosines",
    "ratio",
    "cosine between the lines along which a capsule moves under a change and under its opposite; mean over test images",
)
def alignment_cosines(subject: MeasureInput, factor: str = "rotation", images: int = IMAGES) -> Measurement:
    """choi2019, figure 4."""
    found = _over_images(subject, measure_alignment, factor, images)
    cosine = found["cosine"][factor]
    edges = torch.linspace(-1, 1, len(cosine["counts"]) + 1).tolist()
    histogram = {"edges": [round(edge, 6) for edge in edges], "counts": cosine["counts"]}
    return Measurement(cosine["mean"], details={"histogram": histogram, "same_side": cosine["same_side"]})


@register_measure("perturbation-sheet", "picture", "drawings while one number of the winning capsule is moved")
def moved_dimensions(subject: MeasureInput, low: float = -0.25, high: float = 0.25, step: float = 0.05) -> Measurement:
    """choi2019, figure 3; gu2021, figure 4: one image of each class, the dimension that changes its drawing most."""
    material = _material(subject.run)
    if low != -high or not 0 < step <= high:
        raise TorchcapsError(f"dimensions are moved as far to one side as to the other, got {low:g} to {high:g}")
    data, picture = perturbation_sheet(material, PerturbationRange(high, round((high - low) / step) + 1))
    return Measurement(None, details=data, picture=picture)


@register_measure("reconstruction-sheet", "picture", "the capsules of one network drawn by the decoder of another")
def other_decoder(subject: MeasureInput) -> Measurement:
    """yang2021, figure 2."""
    other = subject.others.get("decoder")
    return _explained(explain_decoding(_material(subject.run, load(other.path) if other else None)))


@register_measure(
    "vote-distances",
    "distance",
    "how far votes lie from the class capsule's mean, weighted by assignment, by iteration",
)
def vote_distance_plot(subject: MeasureInput) -> Measurement:
    """hinton2018, figures 2 and B.2; the picture is the nearer half of one image's votes."""
    return _explained(explain_votes(_material(subject.run)))


def _over_images(
    subject: MeasureInput, measure: Callable[..., dict[str, Any]], factor: str, count: int
) -> dict[str, Any]:
    """Apply a measure of one factor to evenly spaced test images."""
    model = load(subject.run.path)
    batch = sample_images(model, test_images(subject.run.config()), count)
    with torch.no_grad(), progress_bar(factor, None):
        return measure(model, batch.images, batch.labels, factors=[factor])


def _material(run: RunFolder, other: Model | None = None) -> ExplainInput:
    """Return one test image of each class."""
    model, images = load(run.path), test_images(run.config())
    return ExplainInput(
        model, images.class_names, select_images(model, images, None), sample_images(model, images, 1), other
    )


def _explained(found: Explanation) -> Measurement:
    return Measurement(None, details=found.data, picture=next(iter(found.figures.values())))
