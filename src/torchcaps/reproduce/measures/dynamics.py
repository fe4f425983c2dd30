"""Measures of routing: how static couplings are from image to image, starved parents, and coupling entropy."""

from __future__ import annotations

import statistics
from dataclasses import asdict
from typing import TypeVar

import torch

from torchcaps.analysis import coupling_entropy
from torchcaps.analysis.dynamics import RoutingDynamics, measure_dynamics
from torchcaps.analysis.explanation import sample_images
from torchcaps.analysis.inspection import inspect_layers
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate.clean import test_images
from torchcaps.progress import progress_bar
from torchcaps.reproduce.measures.registry import MeasureInput, Measurement, register_measure
from torchcaps.train import load

IMAGES = 1000
BATCH = 20
Layer = TypeVar("Layer")


@register_measure(
    "static-couplings",
    "%",
    "share of the variance of a layer's couplings that lies between pairs of child and parent and not between test "
    "images: 100 if every image has the same couplings",
)
def static_couplings(subject: MeasureInput, images: int = IMAGES, layer: int = 0) -> Measurement:
    """mitterreiter2023; ``layer`` counts capsule layers from the lowest, which is 0."""
    found = _dynamics(subject, images, layer)
    if found.static is None:
        raise TorchcapsError(f"all couplings of {found.name} are equal: this network has no routing to measure")
    return Measurement(100 * found.static, details=asdict(found))


@register_measure(
    "starved-parents",
    "%",
    "share of a layer's parents whose couplings, summed over children and averaged over test images, stay below a "
    "tenth of the mean over all parents",
)
def starved_parents(subject: MeasureInput, images: int = IMAGES, layer: int = 0) -> Measurement:
    """mitterreiter2023; ``layer`` as in static-couplings."""
    found = _dynamics(subject, images, layer)
    return Measurement(100 * found.starved, details=asdict(found))


@register_measure(
    "coupling-entropy",
    "%",
    "entropy of a child's couplings in the last iteration as a share of its maximum, mean over children and test "
    "images: 100 if all parents get the same, 0 if one parent gets all",
)
def relative_coupling_entropy(subject: MeasureInput, images: int = IMAGES, layer: int = 0) -> Measurement:
    """``layer`` as in static-couplings. Attention routing has a distribution over children, not over parents."""
    model = load(subject.run.path)
    batch = sample_images(model, test_images(subject.run.config()), images)
    shares, weights = list[float](), list[int]()
    with torch.no_grad(), progress_bar("coupling entropy", len(batch.images)) as advance:
        for part in batch.images.split(BATCH):
            _, layers = inspect_layers(model, part)
            last = coupling_entropy(_chosen(layers, layer))[-1]
            if last.relative is None:
                raise TorchcapsError("a layer with a single parent has no entropy: choose another layer")
            shares.append(last.relative)
            weights.append(len(part))
            advance(len(part))
    return Measurement(100 * statistics.fmean(shares, weights), details={"over": last.over, "images": sum(weights)})


def _dynamics(subject: MeasureInput, images: int, layer: int) -> RoutingDynamics:
    model = load(subject.run.path)
    batch = sample_images(model, test_images(subject.run.config()), images)
    with torch.no_grad(), progress_bar("couplings", len(batch.images)) as advance:
        return _chosen(measure_dynamics(model, batch.images, advance=advance), layer)


def _chosen(layers: list[Layer], layer: int) -> Layer:
    if not 0 <= layer < len(layers):
        raise TorchcapsError(f"the network has {len(layers)} capsule layers, counted from 0; got layer {layer}")
    return layers[layer]
