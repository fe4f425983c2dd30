"""Measures of capsules: compactness, alignment, perturbed dimensions, decoding by another network, vote distances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.analysis import measure_alignment, measure_compactness, random_reference
from torchcaps.analysis.explainers import explain_votes, perturbation_sheet
from torchcaps.analysis.explanation import ExplainInput, ShownImages, images_for_model, sample_images, select_images
from torchcaps.analysis.figures import image_sheet
from torchcaps.analysis.perturbation import PerturbationRange, reconstruct_with
from torchcaps.analysis.sweeps import BATCH_SIZE, STEPS
from torchcaps.data import Batch, ImageSet
from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.evaluate.clean import test_images
from torchcaps.models import Model
from torchcaps.progress import progress_bar
from torchcaps.reproduce.measures.registry import MeasureInput, Measurement, register_measure
from torchcaps.train import RunFolder, load

IMAGES = 1000
AXES = {"rotation": "rotation", "x": "shift_x", "y": "shift_y"}  # transformations as choi2019 names them
TRANSFORMATIONS = [f"{axis}{sign}" for sign in "+-" for axis in AXES]
RANKS = ("highest", "lowest")
CAPSULES = ("run", "decoder")  # whose capsules are decoded: the run's, or those of the network that has the decoder


@register_measure(
    "compactness",
    "nats",
    "each dimension's share of the variance of the true class's capsule under one factor, as a divergence from equal "
    "shares; mean over test images",
)
def capsule_compactness(subject: MeasureInput, factor: str = "rotation", images: int = IMAGES) -> Measurement:
    """gu2021, section 3.3; ``score_of_mean_shares`` is the other reading, see analysis/sweeps.py."""
    found = _over_images(subject, measure_compactness, [factor], images)
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
    found = _over_images(subject, measure_alignment, [factor], images)
    ratio = found["ratio"][factor][transformation[-1]]
    value = ratio["mean"] if digit is None else ratio["by_class"].get(digit)
    details = ratio | {"by_class": {str(label): mean for label, mean in ratio["by_class"].items()}}
    return Measurement(value, details=details | {"random": found["random"]["own_size"], "images": found["images"]})


@register_measure(
    "alignment-random",
    "ratio",
    "alignment ratio of random vectors; mean over a thousand sets of them",
    network=(),
)
def alignment_random(subject: MeasureInput, vectors: int = 5, dimensions: int = 32) -> Measurement:
    """choi2019, section 4.4: the value without any alignment."""
    found = random_reference(dimensions, count=vectors, seed=subject.seed)
    return Measurement(found["mean"], details={"sd": found["deviation"]})


@register_measure(
    "alignment-cosines",
    "ratio",
    "cosine between the lines along which a capsule moves under a change and under its opposite; mean over test images",
)
def alignment_cosines(subject: MeasureInput, factor: str = "rotation", images: int = IMAGES) -> Measurement:
    """choi2019, figure 4."""
    found = _over_images(subject, measure_alignment, [factor], images)
    cosine = found["cosine"][factor]
    details = {"histogram": _histogram(cosine["counts"]), "same_side": cosine["same_side"]}
    return Measurement(cosine["mean"], details=details)


@register_measure(
    "alignment-peaks",
    "%",
    "share of those cosines within 0.1 of -1 or of 1, whichever is smaller, minus the mean share of an interval of 0.1 "
    "beside 0; rotation and both shifts together",
)
def alignment_peaks(subject: MeasureInput, images: int = IMAGES) -> Measurement:
    """choi2019, figure 4: above 0 if the histogram has a peak at each end.

    The histogram has 20 bins; the share in the middle is the mean of its two middle bins.
    """
    cosines = _over_images(subject, measure_alignment, list(STEPS), images)["cosine"].values()
    counts = torch.tensor([each["counts"] for each in cosines]).sum(0)
    ends, half = min(counts[0], counts[-1]), len(counts) // 2
    value = 100 * float(ends - counts[half - 1 : half + 1].float().mean()) / int(counts.sum())
    return Measurement(value, details={"histogram": _histogram(counts.tolist())})


@register_measure(
    "alignment-lead",
    "ratio",
    "alignment ratio of one digit, mean over all six transformations, minus that of the best other digit; or for the "
    "lowest rank, that of the worst other digit minus it",
)
def alignment_lead(subject: MeasureInput, digit: int = 0, rank: str = "highest", images: int = IMAGES) -> Measurement:
    """choi2019, Table 3: above 0 if the digit has the highest (or lowest) ratio of all."""
    if rank not in RANKS:
        raise unknown_name("rank", rank, RANKS)
    ratios = _over_images(subject, measure_alignment, list(STEPS), images)["ratio"].values()
    sides = [side["by_class"] for each in ratios for side in each.values()]
    if any(digit not in side for side in sides):
        raise TorchcapsError(f"there is no image of digit {digit} among the {images} images: take more images")
    means = {label: sum(side[label] for side in sides) / len(sides) for label in sides[0]}
    others = [mean for label, mean in means.items() if label != digit]
    value = means[digit] - max(others) if rank == "highest" else min(others) - means[digit]
    return Measurement(value, details={"by_class": {str(label): mean for label, mean in means.items()}})


@register_measure("perturbation-sheet", "picture", "drawings while one number of the winning capsule is moved")
def moved_dimensions(subject: MeasureInput, low: float = -0.25, high: float = 0.25, step: float = 0.05) -> Measurement:
    """choi2019, figure 3; gu2021, figure 4: one image of each class, the dimension that changes its drawing most."""
    material = _material(subject.run)
    if low != -high or not 0 < step <= high:
        raise TorchcapsError(f"dimensions are moved as far to one side as to the other, got {low:g} to {high:g}")
    data, picture = perturbation_sheet(material, PerturbationRange(high, round((high - low) / step) + 1))
    return Measurement(None, details=data, picture=picture)


@register_measure(
    "wrong-reconstructions",
    "%",
    "correctly classified test images whose reconstruction by another network's decoder is of another class, as that "
    "network classifies it",
)
def wrong_reconstructions(subject: MeasureInput, images: int = 100, capsules: str = "run") -> Measurement:
    """yang2021, figure 2: capsules of the run, or of the decoder's own network, decoded by that decoder.

    The images are the first of each class that the run classifies correctly, equally many of each class.
    """
    run = subject.run
    if "decoder" not in subject.others:
        raise TorchcapsError("reconstructions need a network with a decoder: name it in the role 'decoder'")
    if capsules not in CAPSULES:
        raise unknown_name("capsules", capsules, CAPSULES)
    model, other = load(run.path), load(subject.others["decoder"].path)
    tested = test_images(run.config())
    with torch.no_grad():
        batch = correct_images(model, tested, images)
        drawn = reconstruct_with(other, model if capsules == "run" else other, batch.images)
        found = other(drawn).scores.argmax(1)
    wrong = int((found != batch.labels).sum())
    details = {
        "wrong": wrong,
        "images": len(batch.labels),
        "mean_squared_error": float((drawn - batch.images).square().mean()),
    }
    picture = _beside_reconstructions(batch, drawn, tested.class_names, max(1, images // model.classes))
    return Measurement(100 * wrong / len(batch.labels), len(batch.labels), details, picture=picture)


@register_measure(
    "vote-distances",
    "distance",
    "how far votes lie from the class capsule's mean, weighted by assignment, by iteration",
)
def vote_distance_plot(subject: MeasureInput, category: str | None = None, whole: bool = False) -> Measurement:
    """hinton2018, figures 2 and, with ``whole``, B.2: of the first test image of a category, by default of three."""
    material = _material(subject.run)
    names = material.shown.names
    if category is not None:
        if category not in names:
            raise unknown_name("category", category, names)
        images = material.shown.images[names.index(category)].unsqueeze(0)
        material = replace(material, shown=ShownImages(images, [category]))
    found = explain_votes(material)
    picture = found.figures["votes-0-whole" if whole else "votes-0-zoomed"]
    return Measurement(None, details=found.data, picture=picture)


def correct_images(model: Model, images: ImageSet, count: int) -> Batch:
    """Return the first images of each class that a model classifies correctly, ``count`` over all classes at most."""
    batch = images_for_model(model, images, torch.arange(len(images)))
    found = [model(part).scores.argmax(1) for part in batch.images.split(BATCH_SIZE)]
    right = torch.nonzero(torch.cat(found) == batch.labels).flatten()
    each = [right[batch.labels[right] == label][: count // model.classes] for label in range(model.classes)]
    chosen = torch.cat(each)
    if not len(chosen):
        raise TorchcapsError("the network classifies no test image correctly: train it longer")
    return Batch(batch.images[chosen], batch.labels[chosen])


def _beside_reconstructions(batch: Batch, drawn: Tensor, names: Sequence[str], each: int) -> Figure:
    """Show a row per class: up to ``each`` images on the left, their reconstructions on the right."""
    sheet = torch.ones(len(names), 2 * each, *drawn.shape[1:])  # white where a class has fewer images
    for label in range(len(names)):
        own = batch.labels == label
        count = int(own.sum())
        sheet[label, :count], sheet[label, each : each + count] = batch.images[own], drawn[own]
    gap = [""] * (each - 1)
    return image_sheet(sheet, names, ["images", *gap, "decoded", *gap])


def _over_images(
    subject: MeasureInput, measure: Callable[..., dict[str, Any]], factors: list[str], count: int
) -> dict[str, Any]:
    """Apply a measure of some factors to evenly spaced test images."""
    model = load(subject.run.path)
    batch = sample_images(model, test_images(subject.run.config()), count)
    with torch.no_grad(), progress_bar(", ".join(factors), None):
        return measure(model, batch.images, batch.labels, factors=factors)


def _histogram(counts: list[int]) -> dict[str, Any]:
    """Return counts of cosines with the edges of their bins."""
    edges = torch.linspace(-1, 1, len(counts) + 1).tolist()
    return {"edges": [round(edge, 6) for edge in edges], "counts": counts}


def _material(run: RunFolder) -> ExplainInput:
    """Return one test image of each class."""
    model, images = load(run.path), test_images(run.config())
    return ExplainInput(model, images.class_names, select_images(model, images, None), sample_images(model, images, 1))
