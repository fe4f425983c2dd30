"""How long work will take, from how fast the same networks were before.

The speed of a training is taken from earlier runs of the same model, size, options, data and batch size, else from a
short measurement that is kept for the next time, else from another machine. What a measure takes is known from earlier
results alone.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torchcaps.data import datasets
from torchcaps.errors import TorchcapsError
from torchcaps.progress import progress_bar
from torchcaps.reproduce.results import find_results
from torchcaps.reproduce.runner import Folders
from torchcaps.reproduce.speeds import kept_speed, shipped_speeds, speed_key
from torchcaps.reproduce.trained import is_trained
from torchcaps.reproduce.work import Training, Work
from torchcaps.train import RunConfig, RunFolder
from torchcaps.train.loop import FEWEST_VALIDATIONS, MATCHING_VALIDATIONS
from torchcaps.train.sets import MOST_VALIDATION

LOOKING_IS_FASTER = 3  # than training: no backward pass


@dataclass(frozen=True)
class Estimator:
    """Estimates for what is done in some folders.

    Args:
        folders: where runs and results may lie already.
        may_measure: whether a network that nobody has trained here is tried for some steps.
    """

    folders: Folders
    may_measure: bool = True

    def seconds(self, works: Iterable[Work], *, anew: bool = False) -> list[float | None]:
        """Of each piece of work; a training that several share counts where it comes first. None: nobody knows.

        With ``anew`` what is trained already counts as well.
        """
        listed, counted, found = list(works), set[Path](), list[float | None]()
        with progress_bar("measuring speeds", len(listed)) as advance:
            for work in listed:
                parts: list[float | None] = [self._measure_seconds.get((work.measure, work.profile), 0.0)]
                for training in with_baselines(work):
                    path = training.path(self.folders.runs)
                    if path not in counted and (anew or not is_trained(training, self.folders.runs)):
                        parts.append(self.training_seconds(training.config))
                    counted.add(path)
                known = [part for part in parts if part is not None]
                found.append(sum(known) if len(known) == len(parts) else None)
                advance(1)
        return found

    def training_seconds(self, config: RunConfig) -> float | None:
        """Of a whole training with its validations, to its last epoch even if it may stop earlier."""
        speed = self.speed(config)
        return None if speed is None else _images(config) / speed

    def speed(self, config: RunConfig) -> float | None:
        """Images a second in training: of runs here, of steps here, or of another machine; None if all are missing."""
        key = speed_key(config)
        if key in self._earlier:
            return self._earlier[key]
        return kept_speed(config, may_measure=self.may_measure) or shipped_speeds().get(key)

    @cached_property
    def _earlier(self) -> dict[str, float]:
        """Mean speed of the runs in the folder."""
        found: dict[str, list[float]] = {}
        for path in self.folders.runs.glob("*/result.json"):
            try:
                run = RunFolder(path.parent)
                key, speed = speed_key(run.config()), run.result("images_per_second")["images_per_second"]
            except TorchcapsError:  # made by another version
                continue
            found.setdefault(key, []).append(speed)
        return {key: statistics.fmean(speeds) for key, speeds in found.items()}

    @cached_property
    def _measure_seconds(self) -> dict[tuple[str, str], float]:
        """Mean seconds of each measure in each profile."""
        found: dict[tuple[str, str], list[float]] = {}
        for result in find_results(self.folders.results):
            if result.error is None:
                found.setdefault((result.measure, result.profile), []).append(result.seconds)
        return {key: statistics.fmean(seconds) for key, seconds in found.items()}


def with_baselines(work: Work) -> list[Training]:
    """The trainings of a cell, and those that must come before them."""
    return [
        each
        for training in work.trainings
        for each in [*([Training(training.matched_to)] if training.matched_to else []), training]
    ]


def _images(config: RunConfig) -> float:
    """So many images' worth of training: those that are shown, and those that are looked at between."""
    whole = datasets.get(config.data).splits["train"]
    wanted = min(config.train_images or whole, whole)
    kept = min(config.validation * wanted, MOST_VALIDATION)
    shown = min(config.epochs * (wanted - kept), (config.steps or float("inf")) * config.batch_size)
    validations = max(FEWEST_VALIDATIONS, shown / wanted * (MATCHING_VALIDATIONS if config.stop_at_accuracy else 1))
    return shown + validations * kept / LOOKING_IS_FASTER
