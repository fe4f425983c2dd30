"""The run that a training asks for: taken as it is, gone on with, or begun."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torchcaps.evaluate import evaluate_run
from torchcaps.evaluate.matched import stopped_like
from torchcaps.files import file_lock
from torchcaps.reproduce.work import Training
from torchcaps.train import RunFolder, fit, new_run


def is_trained(training: Training, runs: Path) -> bool:
    """Whether nothing is left to be done: a run has its result when it is trained and tested."""
    return RunFolder(training.path(runs)).result_file.is_file()


def trained_run(training: Training, runs: Path, over: Callable[[], bool]) -> RunFolder:
    """The trained run; whoever needs the same one gets the same one.

    A run that was stopped or killed goes on from its last checkpoint. TakenError if another runner trains it,
    Interrupted when the time is over: what was done is saved then.
    """
    run = RunFolder(training.path(runs))
    if is_trained(training, runs):
        return run
    baseline = trained_run(Training(training.matched_to), runs, over) if training.matched_to else None
    with file_lock(runs / ".locks" / f"{run.path.name}.lock"):
        if is_trained(training, runs):  # by a runner that was faster
            return run
        if not run.config_file.is_file():
            new_run(stopped_like(training.config, baseline) if baseline else training.config, run.path)
        fit(run, over=over)
        evaluate_run(run)
    return run
