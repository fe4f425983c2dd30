"""What was measured, kept with what it was measured on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from torchcaps.bench.forms import Net, Subject, forms_for
from torchcaps.bench.memory import step_memory
from torchcaps.bench.timing import Budget, Seconds, interleaved, ratio, summary, threads
from torchcaps.environment import describe_environment
from torchcaps.files import write_json
from torchcaps.progress import progress_bar


# MERGED How long networks take for a training step and for an answer, in all forms.
def write_result(folder: Path, name: str, values: dict[str, Any]) -> Path:
    """Write ``name``.json into the folder, with hardware and versions."""
    target = folder / f"{name}.json"
    write_json(target, values | {"environment": describe_environment()})
    return target


def write_rows(folder: Path, name: str, rows: Iterable[dict[str, Any]]) -> tuple[Path, list[dict[str, Any]]]:
    """Write the file anew with every row that is measured: what is cut off keeps what it had."""
    so_far: list[dict[str, Any]] = []
    target = folder / f"{name}.json"
    for row in rows:
        so_far.append(row)
        target = write_result(folder, name, {"rows": so_far})
    return target, so_far


Row = dict[str, Any]
TASKS = {"training": Subject.train_step, "inference": Subject.infer}


def time_nets(
    nets: Iterable[Net], thread_counts: Iterable[int], budget: Budget, *, compiled: bool = False
) -> Iterator[Row]:
    """A row for each network, task and number of threads: seconds of each form, and what each is to ours."""
    work = [(net, count, task) for net in nets for count in thread_counts for task in TASKS]
    with progress_bar("networks", len(work)) as advance:
        for net, count, task in work:
            yield time_net(net, count, task, budget, forms_for(net, compiled=compiled))
            advance(1)


def time_net(net: Net, thread_count: int, task: str, budget: Budget, forms: Iterable[str]) -> Row:
    """One row. The forms are built anew: what torch.compile makes is for one number of threads.

    It also makes at most eight versions of one function, and for the ninth network it would quietly make nothing.
    """
    torch.compiler.reset()
    with threads(thread_count):
        seconds = take_turns({form: (net, form) for form in forms}, task, budget)
    return {
        **named(net),
        "threads": thread_count,
        "task": task,
        "seconds": {form: summary(values) for form, values in seconds.items()},
        "times ours": {form: ratio(seconds, form, "torchcaps") for form in seconds if form != "torchcaps"},
    }


def take_turns(jobs: dict[str, tuple[Net, str]], task: str, budget: Budget) -> Seconds:
    """Seconds of a task, for each of several networks and forms in every round."""
    subjects = {name: Subject(net, form) for name, (net, form) in jobs.items()}
    work = {name: partial(TASKS[task], subject) for name, subject in subjects.items()}
    net, _ = next(iter(jobs.values()))
    return interleaved(work, budget, f"{net.model}, {task}")


def weigh_nets(nets: Sequence[Net], *, compiled: bool = False) -> Iterator[Row]:
    """A row for each network: bytes of a training step in each form, each in a fresh process on one thread."""
    with progress_bar("networks", len(nets)) as advance:
        for net in nets:
            forms = forms_for(net, compiled=compiled)
            yield {**named(net), "bytes": {form: step_memory(net, form) for form in forms}}
            advance(1)


def named(net: Net) -> Row:
    """What a row says of its network."""
    return {"model": net.model, "size": net.size, "batch": net.batch, "image": list(net.image_shape)}
