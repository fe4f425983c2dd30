"""Estimate how long jobs take, from the measured training speed of the same networks; parse and format durations."""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from torchcaps.bench.steps import time_workloads
from torchcaps.bench.timing import TimingBudget, num_threads
from torchcaps.data import datasets
from torchcaps.environment import processor_name
from torchcaps.errors import TorchcapsError
from torchcaps.files import cache_folder, read_json, write_json
from torchcaps.progress import progress_bar
from torchcaps.reproduce.jobs import THREADS, Job, TrainingJob, digest
from torchcaps.reproduce.measures.cost import bench_net
from torchcaps.reproduce.results import CellResult, find_results
from torchcaps.reproduce.runner import Folders, is_trained
from torchcaps.train import RunConfig, RunFolder
from torchcaps.train.loop import FEWEST_VALIDATIONS, MATCHING_VALIDATIONS
from torchcaps.train.splits import MOST_VALIDATION

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(text: str) -> float:
    """Parse a duration such as 90s, 30m, 2h or 1h30m.

    >>> parse_duration("90s"), parse_duration("1h30m"), parse_duration("0.5h")
    (90.0, 5400.0, 1800.0)
    """
    if not re.fullmatch(r"(\d+(\.\d+)?[smhd])+", text):
        raise TorchcapsError(f"duration '{text}' is not valid: write it like 90s, 30m, 2h or 1h30m")
    return sum(float(number) * SECONDS[unit] for number, _, unit in re.findall(r"(\d+(\.\d+)?)([smhd])", text))


def format_duration(seconds: float | None) -> str:
    """Format a duration in its two largest units; None means unknown.

    >>> format_duration(7), format_duration(192.4), format_duration(7260), format_duration(90000), format_duration(None)
    ('7 s', '3 min 12 s', '2 h 1 min', '1 d 1 h', '?')
    >>> format_duration(0), format_duration(86400 + 60)
    ('0 s', '1 d')
    """
    if seconds is None:
        return "?"
    amounts, left = list[tuple[int, str]](), round(seconds)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        amount, left = divmod(left, length)
        if amounts or amount or unit == "s":
            amounts.append((amount, unit))
    first, *others = amounts
    return " ".join(f"{amount} {unit}" for amount, unit in [first, *(each for each in others[:1] if each[0])])


SPEED_SETTINGS = ("model", "size", "options", "data", "batch_size")
SPEEDLESS = ("gamma", "weight")  # options of discriminative routing
SHORT = TimingBudget(rounds=5, seconds=5.0)
SHIPPED = files("torchcaps.reproduce") / "speeds.json"


def speed_key(config: RunConfig) -> str:
    """Return the key of the settings that determine the training speed."""
    return settings_key(config.model_dump(mode="json"))


def settings_key(settings: dict[str, Any]) -> str:
    """Return the key for settings as stored in a file. Step size and penalty of a routing do not affect the speed."""
    options = dict(settings["options"])
    routing = {name: value for name, value in options.pop("routing_options", {}).items() if name not in SPEEDLESS}
    if routing:
        options["routing_options"] = routing
    return json.dumps({name: settings[name] for name in SPEED_SETTINGS} | {"options": options}, sort_keys=True)


def measure_speed(config: RunConfig) -> float:
    """Time a few training steps on random images; return images per second.

    With one thread the time is CPU time, which leaves out the time spent waiting for a core of a busy machine.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    seconds = time_workloads({config.model: (bench_net(config), "torchcaps")}, "training", SHORT, clock)[config.model]
    return config.batch_size / statistics.median(seconds)


def cached_speed(config: RunConfig, *, may_measure: bool, threads: int | None = None) -> float | None:
    """Return the cached speed of this machine with a number of threads; measure and cache it if allowed."""
    threads = threads or torch.get_num_threads()
    key, machine = speed_key(config), f"{processor_name()}, {threads} threads"
    kept = cache_folder() / "speeds" / f"{digest([key, machine])}.json"
    if kept.is_file():
        return float(read_json(kept)["images_per_second"])
    if not may_measure:
        return None
    with num_threads(threads):
        speed = measure_speed(config)
    write_json(kept, {"images_per_second": speed, "machine": machine, "of": json.loads(key)})
    return speed


@cache
def shipped_speeds() -> dict[tuple[str, int], float]:
    """Return the speed of every network of the specs on a reference machine, by key and number of threads."""
    threads = _shipped()["environment"]["threads"]
    return {(settings_key(row), row.get("threads", threads)): row["images_per_second"] for row in _shipped()["rows"]}


def shipped_speed(config: RunConfig, threads: int | None = None) -> float | None:
    """Return the speed on the reference machine with a number of threads, by default with all of its threads.

    If one thread was not timed, it has its share of the speed of all threads.
    """
    key, all_threads = speed_key(config), _shipped()["environment"]["threads"]
    whole = shipped_speeds().get((key, all_threads))
    if threads is None:
        return whole
    return shipped_speeds().get((key, threads)) or (whole and whole * threads / all_threads)


def shipped_machine() -> str:
    """Describe the reference machine, or machines if not all networks were timed on the same one."""
    environment = _shipped()["environment"]
    processors = sorted({row.get("processor", environment["processor"]) for row in _shipped()["rows"]})
    return f"{' or '.join(processors)} with {environment['threads']} threads"


@cache
def _shipped() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SHIPPED.read_text(encoding="utf-8"))
    return found


LEAST_HOURS = 0.1  # printed
EVAL_SPEEDUP = 3  # speed of evaluation relative to training: no backward pass


@dataclass(frozen=True)
class Estimator:
    """Estimate durations.

    Args:
        folders: folders with earlier runs and results.
        may_measure: whether networks without an earlier run may be timed for a few steps.
    """

    folders: Folders
    may_measure: bool = True

    def seconds(self, jobs: Iterable[Job], *, include_trained: bool = False) -> list[float | None]:
        """Return the seconds of each job, or None if unknown; a shared training counts for the first job only.

        With ``include_trained``, runs that are trained already count as well.
        """
        listed, counted, found = list(jobs), set[Path](), list[float | None]()
        with progress_bar("measuring speeds", len(listed)) as advance:
            for job in listed:
                parts: list[float | None] = [self._measure_seconds.get((job.measure, job.profile), 0.0)]
                for training in with_baselines(job):
                    path = training.path(self.folders.runs)
                    if path not in counted and (include_trained or not is_trained(training, self.folders.runs)):
                        parts.append(self.training_seconds(training.config, THREADS.get(job.profile)))
                    counted.add(path)
                known = [part for part in parts if part is not None]
                found.append(sum(known) if len(known) == len(parts) else None)
                advance(1)
        return found

    def training_seconds(self, config: RunConfig, threads: int | None = None) -> float | None:
        """Return the seconds of a whole training with its validations, without early stopping."""
        speed = self.speed(config, threads)
        return None if speed is None else training_images(config) / speed

    def speed(self, config: RunConfig, threads: int | None = None) -> float | None:
        """Return images per second from earlier runs, cached timings, the reference machine or a timing, else None.

        ``threads`` is a number of threads per training, by default that of this process; earlier runs count whatever
        number they had.
        """
        key = speed_key(config)
        found = self._earlier.get((key, threads)) if threads else self._earlier.get((key, None))
        if found is not None:
            return found
        known = cached_speed(config, may_measure=False, threads=threads) or shipped_speed(config, threads)
        return known or cached_speed(config, may_measure=self.may_measure, threads=threads)

    @cached_property
    def _earlier(self) -> dict[tuple[str, int | None], float]:
        """Mean speed of earlier runs by key and number of threads; None: of all of them."""
        found: dict[tuple[str, int | None], list[float]] = {}
        for path in self.folders.runs.glob("*/result.json"):
            try:
                run = RunFolder(path.parent)
                key, result = speed_key(run.config()), run.result("images_per_second")
            except TorchcapsError:  # written by another version
                continue
            for threads in {None, result.get("environment", {}).get("threads")}:
                found.setdefault((key, threads), []).append(result["images_per_second"])
        return {key: statistics.fmean(speeds) for key, speeds in found.items()}

    @cached_property
    def _measure_seconds(self) -> dict[tuple[str, str], float]:
        """Mean seconds of each measure and profile."""
        found: dict[tuple[str, str], list[float]] = {}
        for result in find_results(self.folders.results):
            if result.error is None:
                found.setdefault((result.measure, result.profile), []).append(result.seconds)
        return {key: statistics.fmean(seconds) for key, seconds in found.items()}


def with_baselines(job: Job) -> list[TrainingJob]:
    """Return the trainings of a job, each after the one that it is matched to."""
    return [
        each
        for training in job.trainings
        for each in [*([TrainingJob(training.matched_to)] if training.matched_to else []), training]
    ]


@dataclass(frozen=True)
class Cost:
    """What jobs cost on the reference machine.

    Args:
        core_hours: of all trainings and measurements whose speed is known.
        unknown: number of trainings whose speed was never measured.
    """

    core_hours: float = 0.0
    unknown: int = 0

    def __str__(self) -> str:
        """Return the cost in words.

        >>> str(Cost(0.04)), str(Cost(3.21)), str(Cost(9.96)), str(Cost(1234.5)), str(Cost(1, 2)), str(Cost(0.01, 2))
        ('0.1', '3.2', '10', '1,234', '> 1.0', '?')
        """
        if self.unknown and self.core_hours < LEAST_HOURS:
            return "?"
        hours = round(max(self.core_hours, LEAST_HOURS), 1)
        shown = f"{self.core_hours:,.0f}" if hours >= 10 else f"{hours:.1f}"
        return f"> {shown}" if self.unknown else shown


def job_cost(jobs: Iterable[Job], results: Iterable[CellResult]) -> Cost:
    """Return the core-hours of jobs on the reference machine, one thread per training; shared trainings count once.

    A measurement takes as long as the same measure took in earlier results, in the same profile if it ran there.
    """
    listed = list(jobs)
    seconds, known = 0.0, _core_seconds(results)
    for job in listed:
        seconds += known.get((job.measure, job.profile), known.get((job.measure, None), 0.0))
    trainings = {each.path(Path()): each.config for job in listed for each in with_baselines(job)}
    speeds = {path: shipped_speed(config, 1) for path, config in trainings.items()}
    seconds += sum(training_images(trainings[path]) / speed for path, speed in speeds.items() if speed)
    return Cost(seconds / 3600, sum(speed is None for speed in speeds.values()))


def _core_seconds(results: Iterable[CellResult]) -> dict[tuple[str, str | None], float]:
    """Mean core-seconds of each measure by profile; None: in all profiles."""
    found: dict[tuple[str, str | None], list[float]] = {}
    for result in results:
        if result.error is None:
            spent = result.seconds * int(result.environment.get("threads") or 1)
            for profile in (result.profile, None):
                found.setdefault((result.measure, profile), []).append(spent)
    return {key: statistics.fmean(values) for key, values in found.items()}


def training_images(config: RunConfig) -> float:
    """Return the training effort in images; validation images count for less."""
    wanted, kept = _split(config)
    shown = images_shown(config)
    validations = max(FEWEST_VALIDATIONS, shown / wanted * (MATCHING_VALIDATIONS if config.stop_at_accuracy else 1))
    return shown + validations * kept / EVAL_SPEEDUP


def images_shown(config: RunConfig) -> float:
    """Return the number of training images shown over all epochs, without early stopping."""
    wanted, kept = _split(config)
    return min(config.epochs * (wanted - kept), (config.steps or float("inf")) * config.batch_size)


def _split(config: RunConfig) -> tuple[int, float]:
    """Return the number of images used, and how many of them are for validation."""
    whole = datasets.get(config.data).splits["train"]
    wanted = min(config.train_images or whole, whole)
    return wanted, min(config.validation * wanted, MOST_VALIDATION)
