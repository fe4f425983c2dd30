"""Run jobs: train the runs that cells need, measure them, and write the results.

Several runners may share the same folders: lock files keep them from doing the same work twice.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from torchcaps.analysis.style import save_figure
from torchcaps.environment import describe_environment
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate import evaluate_run
from torchcaps.evaluate.clean import stop_like_baseline
from torchcaps.files import TakenError, file_lock, write_text
from torchcaps.progress import progress_bar
from torchcaps.reproduce.jobs import Job, TrainingJob
from torchcaps.reproduce.measures import MeasureInput, measures
from torchcaps.reproduce.results import CellResult, read_result, save_result
from torchcaps.train import Interrupted, RunFolder, fit_run, new_run


def is_trained(training: TrainingJob, runs: Path) -> bool:
    """Whether a run is trained and tested: only then it has a result file."""
    return RunFolder(training.path(runs)).result_file.is_file()


def train_run(training: TrainingJob, runs: Path, should_stop: Callable[[], bool]) -> RunFolder:
    """Train and test a run, or return it if that is done already.

    A run that was stopped or killed resumes from its last checkpoint. Raises TakenError if another runner trains it,
    and Interrupted, after saving a checkpoint, when ``should_stop`` returns True.
    """
    run = RunFolder(training.path(runs))
    if is_trained(training, runs):
        return run
    baseline = train_run(TrainingJob(training.matched_to), runs, should_stop) if training.matched_to else None
    with file_lock(runs / ".locks" / f"{run.path.name}.lock"):
        if is_trained(training, runs):  # by another runner in the meantime
            return run
        if not run.config_file.is_file():
            new_run(stop_like_baseline(training.config, baseline) if baseline else training.config, run.path)
        fit_run(run, should_stop=should_stop)
        evaluate_run(run)
    return run


def measure_cell(job: Job, trained: dict[str, RunFolder], results: Path, runs: Path) -> CellResult:
    """Measure a cell and write its result. ``trained`` maps roles to runs; the cell's own run has the role ''."""
    own = trained.get("")
    others = {role: run for role, run in trained.items() if role}
    record = measures.get(job.measure)
    torch.manual_seed(job.seed)  # independent of what this process did before
    began = time.perf_counter()
    configs = {role: training.config for role, training in job.roles.items()}
    subject = MeasureInput(own, others, job.seed, dict(job.settings), runs / "shared", configs)
    measured = record.function(subject)
    seconds = time.perf_counter() - began
    path = job.result_file(results)
    picture = None
    if measured.picture is not None:  # written before the result that refers to it
        picture = path.with_suffix(".png")
        save_figure(measured.picture, picture)
    run_result: dict[str, Any] = own.result() if own else {}
    result = CellResult(
        **_identity(job),
        unit=record.unit,
        value=measured.value,
        images=measured.images,
        details=measured.details,
        warnings=(*run_warnings(trained), *measured.warnings),
        picture=picture.name if picture else None,
        selection_split=run_result.get("selection_split"),
        training=_run_settings(job, own),
        training_seconds=run_result.get("training_seconds"),
        training_core_seconds=run_result.get("training_core_seconds"),
        seconds=seconds,
        environment=describe_environment(),
    )
    save_result(path, result)
    return result


def record_failure(job: Job, error: Exception, results: Path, runs: Path) -> CellResult:
    """Write a result with the error message; the traceback of an unexpected error is saved next to the runs."""
    sentence = str(error)
    path = job.result_file(results)
    if not isinstance(error, TorchcapsError):
        sentence = " ".join(f"{type(error).__name__}: {error}".split())
        name = f"{job.spec.paper}-{job.table}-{path.stem}.txt"
        write_text(runs / "errors" / name, "".join(traceback.format_exception(error)))
    unit = measures.get(job.measure).unit if job.measure in measures else ""
    result = CellResult(**_identity(job), unit=unit, error=sentence, environment=describe_environment())
    save_result(path, result)
    return result


def _run_settings(job: Job, own: RunFolder | None) -> dict[str, Any] | None:
    """Return the settings of the cell's own run, which is trained or, for counts and times, only described."""
    config = own.config() if own else job.training.config if job.training else None
    return config.model_dump(mode="json") if config else None


def _identity(job: Job) -> dict[str, Any]:
    return {
        "paper": job.spec.paper,
        "table": job.table,
        "cell": job.name,
        "profile": job.profile,
        "seed": job.seed,
        "measure": job.measure,
        "published": job.cell.published,
        "fingerprint": job.fingerprint(),
    }


def run_warnings(trained: dict[str, RunFolder]) -> list[str]:
    """Return a warning for each run that missed the accuracy it is matched to, or that learned nothing."""
    found = [run.result("model", "validation_accuracy", "reached", "confusion") for run in trained.values()]
    unmatched = [
        f"{each['model']} reached {each['validation_accuracy']:.2%} of the images it is matched on, "
        f"not {each.get('stop_at_accuracy') or 0:.2%}: the training was too short"
        for each in found
        if each["reached"] is False
    ]
    dead = [
        f"{each['model']} gives the same answer to every test image: it did not learn, and its value says nothing"
        for each in found
        if sum(map(any, zip(*each["confusion"], strict=True))) == 1
    ]
    return unmatched + dead


POLL_SECONDS = 2.0  # time between two attempts to get jobs that other runners hold


@dataclass(frozen=True)
class Folders:
    """The folder of the results and the folder of the trained runs."""

    results: Path
    runs: Path


def current_result(job: Job, results: Path) -> CellResult | None:
    """Return the result of a job if it was measured with the current settings; ``error`` is set if it failed."""
    path = job.result_file(results)
    if not path.is_file():
        return None
    try:
        result = read_result(path)
    except TorchcapsError:  # written by another version: measure again
        return None
    return result if result.fingerprint == job.fingerprint() else None


State = Literal["done", "failed", "open"]


def job_state(job: Job, results: Path) -> State:
    """Return whether a job is done, failed or still open."""
    found = current_result(job, results)
    return "open" if found is None else "failed" if found.error else "done"


@dataclass(frozen=True)
class RunnerContext:
    """Settings of one invocation of ``torchcaps reproduce``, shared by all its workers.

    Args:
        folders: folders of results and runs.
        until: end of the time budget, in seconds since the epoch; a running training is saved then.
        previous_failures: modification times of the results that had failed before; these jobs are retried once.
        log: called with a line for every event.
        stop_requested: returns True to stop before the time budget is used up.
    """

    folders: Folders
    until: float = math.inf
    previous_failures: dict[Path, int] = field(default_factory=dict)
    log: Callable[[str], None] = lambda text: None
    stop_requested: Callable[[], bool] = lambda: False

    def should_stop(self) -> bool:
        return time.time() >= self.until or self.stop_requested()

    def is_finished(self, job: Job) -> bool:
        """Whether a job is done, or has failed in this invocation."""
        state = job_state(job, self.folders.results)
        path = job.result_file(self.folders.results)
        return state == "done" or (state == "failed" and self.previous_failures.get(path) != _mtime(path))


def failed_results(jobs: Iterable[Job], results: Path) -> dict[Path, int]:
    """Return the result files of failed jobs with their modification times."""
    failed = [job.result_file(results) for job in jobs if job_state(job, results) == "failed"]
    return {path: _mtime(path) for path in failed}


def run_jobs(jobs: Iterable[Job], context: RunnerContext) -> None:
    """Run all jobs, or as many as the time budget allows.

    A failed job is recorded with its error, and the others continue. Jobs held by another runner are left to it, but
    this function returns only when they are finished, too. Raises Interrupted on a request to stop.
    """
    left = [job for job in jobs if not context.is_finished(job)]
    waiting = False
    with progress_bar("cells", len(left)) as advance:
        while left and not context.should_stop():
            others = []  # held by other runners
            for job in left:
                if _run_job(job, context):
                    advance(1)
                else:
                    others.append(job)
            stuck = len(others) == len(left) and not context.should_stop()
            if stuck and not waiting:
                context.log(f"waiting for other runners to finish {_cells(len(left))}")
            if stuck:
                time.sleep(POLL_SECONDS)
            left, waiting = others, stuck


def _run_job(job: Job, context: RunnerContext) -> bool:
    """Run one job unless it is finished; return False if another runner holds it or the time budget is used up."""
    if context.should_stop():
        return False
    if context.is_finished(job):
        return True
    results, runs = context.folders.results, context.folders.runs
    try:
        name = "-".join(job.result_file(results).relative_to(results).with_suffix("").parts)
        with file_lock(results / ".locks" / f"{name}.lock"):
            if context.is_finished(job):  # by another runner in the meantime
                return True
            try:
                trained = _train(job, context)
                result = measure_cell(job, trained, results, runs)
            except (TakenError, KeyboardInterrupt):
                raise
            except Exception as error:  # the other jobs must continue
                result = record_failure(job, error, results, runs)
            context.log(describe_result(job, result))
            return True
    except TakenError:
        return False
    except KeyboardInterrupt as stop:
        if context.should_stop():
            return False
        raise Interrupted from stop


def _train(job: Job, context: RunnerContext) -> dict[str, RunFolder]:
    """Train the runs that a job needs and return them by role; the cell's own run has the role ''.

    If another runner holds one of them, the others are still trained before TakenError is raised.
    """
    trained, taken = {}, None
    for role, training in job.roles.items() if job.needs_training else ():
        try:
            trained[role] = train_run(training, context.folders.runs, context.should_stop)
        except TakenError as error:
            taken = error
    if taken:
        raise taken
    return trained


def describe_result(job: Job, result: CellResult) -> str:
    """Describe the result of a job in one line."""
    if result.error:
        return f"{job}: failed: {result.error}"
    value = "measured" if result.value is None else f"{result.value:.4g} {result.unit}"
    paper = "" if result.published is None else f" (the paper: {result.published:.4g})"
    return f"{job}: {value}{paper}"


def _cells(count: int) -> str:
    return f"{count} cell{'s' if count > 1 else ''}"


def _mtime(path: Path) -> int:
    return path.stat().st_mtime_ns
