"""Matched accuracy: models are compared where they are equally good at what they were trained for.

gu2021 stops its models at 99.22 % of MNIST; hinton2018 (Table 2) stops the capsule model where its error from familiar
sides equals the baseline's. The images that are tested decide nothing: validation images do, or, in the second case
and as in the paper, the split ``familiar``, which has the tested toys but none of the tested sides.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchcaps.data import load_dataset
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate.viewpoint import FAMILIAR
from torchcaps.train import RunConfig, RunFolder, load, measure, resolve


def stopped_at(config: RunConfig, accuracy: float, on: str = "validation") -> RunConfig:
    """The same settings, but the run ends as soon as so much is right."""
    return resolve(**config.model_dump() | {"stop_at_accuracy": accuracy, "stop_on": on})


def stopped_like(config: RunConfig, baseline: RunFolder) -> RunConfig:
    """The same settings, but the run ends where it is as good from familiar sides as a trained baseline is."""
    images = load_dataset(config.data, FAMILIAR)
    accuracy = measure(load(baseline.path), images, description="familiar sides").accuracy
    if accuracy == 0:
        raise TorchcapsError(f"{baseline.path} is never right from familiar sides: nothing can be matched with it")
    return stopped_at(config, accuracy, FAMILIAR)


def comparable(results: Iterable[dict[str, Any]]) -> bool:
    """Whether every run reached the accuracy at which it was to stop; runs that were to stop nowhere did."""
    return all(result.get("reached") is not False for result in results)
