"""A paper spec that is fast to reproduce in tests, with its own measure."""

from __future__ import annotations

from pathlib import Path

import tests.helpers.tiny_model  # noqa: F401  (registers the model)
from torchcaps.reproduce.jobs import Job, plan_jobs
from torchcaps.reproduce.measures import MeasureInput, Measurement, MeasureRecord, measures
from torchcaps.reproduce.runner import Folders, RunnerContext, failed_results
from torchcaps.reproduce.spec import Spec, parse_spec
from torchcaps.train import load

SPEC = """
paper: small2026
title: A small paper
authors: Nobody
defaults:
  laptop:
    {data: glyphs, train_images: 200, test_images: 50, batch_size: 32, device: cpu, save_minutes: 0, epochs: EPOCHS}
trainings:
  first: {settings: {model: tiny, learning_rate: RATE}}
  second: {settings: {model: tiny, optimizer: rmsprop}}
tables:
  table1:
    title: Weights
    seeds: {laptop: 2, paper: 5}
    cells:
      mean: {row: first, column: mean, training: first, measure: weights-mean, published: 1.5}
      again: {row: first, column: again, training: first, measure: weights-mean, with: {times: 2}}
      both: {row: both, column: mean, training: second, others: {other: first}, measure: weights-mean}
      cited: {row: theirs, column: mean, published: 2.5}
  table2:
    title: What goes wrong
    seeds: {laptop: 1, paper: 1}
    cells:
      broken: {row: broken, column: mean, measure: always-wrong}
      clumsy: {row: clumsy, column: mean, measure: needs-a-run}
      fine: {row: fine, column: mean, training: first, measure: weights-mean}
claims: {}
"""


def small_spec(rate: float = 0.01, epochs: int = 1) -> Spec:
    return parse_spec(SPEC.replace("RATE", str(rate)).replace("EPOCHS", str(epochs)))


def small_jobs(table: str = "table1", spec: Spec | None = None, cells: list[str] | None = None) -> list[Job]:
    return plan_jobs(spec or small_spec(), "laptop", tables=[table], cells=cells)


def new_context(folder: Path, jobs: list[Job], **settings: object) -> RunnerContext:
    folders = Folders(folder / "results", folder / "runs")
    return RunnerContext(folders, previous_failures=failed_results(jobs, folders.results), **settings)  # type: ignore[arg-type]


def weights_mean(subject: MeasureInput) -> Measurement:
    runs = [subject.run, *subject.others.values()]
    # One line for each measurement, so that a test can count them.
    subject.shared.mkdir(parents=True, exist_ok=True)
    with (subject.shared / "measured.txt").open("a") as file:
        file.write(f"{' '.join(run.path.name for run in runs)} {subject.settings}\n")
    means = [next(iter(load(run.path).parameters())).mean().item() for run in runs]
    return Measurement(sum(means) * subject.settings.get("times", 1), warnings=("this means nothing",))


def always_wrong(subject: MeasureInput) -> Measurement:
    raise ZeroDivisionError("one of\nthose days")


def needs_a_run(subject: MeasureInput) -> Measurement:
    return Measurement(float(len(subject.run.path.name)))


for name, function in (("weights-mean", weights_mean), ("always-wrong", always_wrong), ("needs-a-run", needs_a_run)):
    if name not in measures:
        measures.add(MeasureRecord(name, "weight", "for tests", function))
