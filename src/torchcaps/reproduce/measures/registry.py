"""The registry of measures, with their input and output."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from torchcaps.errors import TorchcapsError
from torchcaps.registry import Registry
from torchcaps.train import RunConfig, RunFolder


@dataclass(frozen=True)
class MeasureInput:
    """The input of a measure.

    Args:
        trained: the run of the cell, or None if it has no training.
        others: further trained runs by role, such as ``source`` for a transfer attack.
        seed: seed of the cell, for random numbers of the measure.
        settings: arguments of the measure from the spec.
        shared: folder for files that several cells share.
        configs: settings of the same runs by role, '' for that of the cell; all that an untrained measure gets.
    """

    trained: RunFolder | None
    others: dict[str, RunFolder]
    seed: int
    settings: dict[str, Any]
    shared: Path
    configs: dict[str, RunConfig] = field(default_factory=dict)

    @property
    def run(self) -> RunFolder:
        if self.trained is None:
            raise TorchcapsError("this measure needs a training: name one in the cell of the spec")
        return self.trained


@dataclass(frozen=True)
class Measurement:
    """The output of a measure.

    Args:
        value: the number to compare with the published one, or None if there is no single number.
        images: the number of images, if the value is a percentage of images; tests of claims need it.
        details: further JSON data, such as curves, histograms or parts of an average.
        warnings: sentences about the reliability of the value.
        picture: a figure that cannot be drawn from the details.
    """

    value: float | None
    images: int | None = None
    details: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    picture: Figure | None = None


@dataclass(frozen=True)
class MeasureRecord:
    """A registered measure; ``how`` describes how the value is computed, ``unit`` is %, ratio, seconds...

    Args:
        settings: names of its arguments.
        network: settings of a run that determine its value, if no network must be trained for it. It then presupposes
            no accuracy: it decides claims without a competence condition. None if it measures trained networks.
        exact: whether the value is counted: one seed is enough, and the network is that of profile paper.
    """

    name: str
    unit: str
    how: str
    function: Callable[[MeasureInput], Measurement]
    settings: tuple[str, ...] = ()
    network: tuple[str, ...] | None = None
    exact: bool = False

    @property
    def trained(self) -> bool:
        """Whether it measures trained networks."""
        return self.network is None


measures: Registry[MeasureRecord] = Registry("measure")


def register_measure(
    name: str, unit: str, how: str, *, network: tuple[str, ...] | None = None, exact: bool = False
) -> Callable[[Callable[..., Measurement]], Callable[..., Measurement]]:
    """Register a function of a MeasureInput and keyword arguments as a measure.

    The settings of a table apply to all its measures, so settings that the function does not accept are ignored.
    ``network`` and ``exact`` are those of MeasureRecord.
    """

    def register(function: Callable[..., Measurement]) -> Callable[..., Measurement]:
        known = tuple(inspect.signature(function).parameters)[1:]

        def with_settings(subject: MeasureInput) -> Measurement:
            return function(subject, **{key: subject.settings[key] for key in known if key in subject.settings})

        measures.add(MeasureRecord(name, unit, how, with_settings, known, network, exact))
        return function

    return register
