"""How long networks take for a training step and for an answer, in all forms."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from torchcaps.bench.forms import Subject, forms_for
from torchcaps.bench.memory import step_memory
from torchcaps.bench.nets import Net
from torchcaps.bench.timing import Budget, Seconds, interleaved, ratio, summary, threads
from torchcaps.progress import progress_bar

Row = dict[str, Any]
TASKS = {"training": Subject.train_step, "inference": Subject.infer}


def time_nets(
    nets: Iterable[Net], thread_counts: Iterable[int], budget: Budget, *, compiled: bool = False
) -> list[Row]:
    """A row for each network, task and number of threads: seconds of each form, and what each is to ours."""
    work = [(net, count, task) for net in nets for count in thread_counts for task in TASKS]
    rows = []
    with progress_bar("networks", len(work)) as advance:
        for net, count, task in work:
            rows.append(time_net(net, count, task, budget, forms_for(net, compiled=compiled)))
            advance(1)
    return rows


def time_net(net: Net, thread_count: int, task: str, budget: Budget, forms: Iterable[str]) -> Row:
    """One row. The forms are built anew: what torch.compile makes is for one number of threads."""
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


def weigh_nets(nets: Iterable[Net], *, compiled: bool = False) -> list[Row]:
    """A row for each network: bytes of a training step in each form, each in a fresh process on one thread."""
    work = [(net, form) for net in nets for form in forms_for(net, compiled=compiled)]
    rows: dict[tuple[str, str], Row] = {}
    with progress_bar("processes", len(work)) as advance:
        for net, form in work:
            row = rows.setdefault((net.model, net.size), {**named(net), "bytes": {}})
            row["bytes"][form] = step_memory(net, form)
            advance(1)
    return list(rows.values())


def named(net: Net) -> Row:
    """What a row says of its network."""
    return {"model": net.model, "size": net.size, "batch": net.batch, "image": list(net.image_shape)}
