"""What a measure gets and gives, and the registry of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from torchcaps.errors import TorchcapsError
from torchcaps.registry import Registry
from torchcaps.train import RunFolder


@dataclass(frozen=True)
class MeasureInput:
    """What is measured.

    Args:
        trained: the run of the cell; None where the measure needs none.
        others: further trained runs by role, such as ``source`` for a transferred attack.
        seed: of the cell, for whatever the measure draws.
        settings: of the measure, from the spec.
        shared: folder for what several cells need and is slow to make, beside the runs.
    """

    trained: RunFolder | None
    others: dict[str, RunFolder]
    seed: int
    settings: dict[str, Any]
    shared: Path

    @property
    def run(self) -> RunFolder:
        if self.trained is None:
            raise TorchcapsError("this measure needs a training: name one in the spec's cell")
        return self.trained


@dataclass(frozen=True)
class Measurement:
    """What came out.

    Args:
        value: the number that stands beside the paper's; None for what has no single number.
        images: if the value is a share of so many images, their number: claims are tested with it.
        details: everything else, ready for JSON: curves, histograms, parts of an average.
        warnings: why a reader should be careful, a sentence each.
        picture: for what is looked at and cannot be drawn from the details.
    """

    value: float | None
    images: int | None = None
    details: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    picture: Figure | None = None


@dataclass(frozen=True)
class MeasureRecord:
    """A measure by name; ``how`` says in a sentence how the value is computed, ``unit`` is %, ratio, seconds..."""

    name: str
    unit: str
    how: str
    function: Callable[[MeasureInput], Measurement]
    settings: tuple[str, ...] = ()  # those that it knows


measures: Registry[MeasureRecord] = Registry("measure")


def register_measure(
    name: str, unit: str, how: str
) -> Callable[[Callable[..., Measurement]], Callable[..., Measurement]]:
    """Register a function of a subject and of settings by name; those settings it is given that it has names for.

    A table's settings are for all its measures, so that one may well be given what only another knows.
    """

    def register(function: Callable[..., Measurement]) -> Callable[..., Measurement]:
        known = tuple(inspect.signature(function).parameters)[1:]

        def with_settings(subject: MeasureInput) -> Measurement:
            return function(subject, **{key: subject.settings[key] for key in known if key in subject.settings})

        measures.add(MeasureRecord(name, unit, how, with_settings, known))
        return function

    return register
