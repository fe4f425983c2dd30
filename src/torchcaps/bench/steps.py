"""Time and memory of training steps and inference, in all implementations; and the result files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from torchcaps.bench.memory import step_memory
from torchcaps.bench.timing import Seconds, TimingBudget, num_threads, quartiles, ratio, time_interleaved
from torchcaps.bench.workload import NetSpec, Workload, forms_for
from torchcaps.environment import describe_environment
from torchcaps.files import write_json
from torchcaps.kernels.autotune import Case, ratio_to_pytorch, time_forms
from torchcaps.progress import progress_bar

Row = dict[str, Any]
TASKS = {"training": Workload.train_step, "inference": Workload.infer}


def time_nets(
    nets: Iterable[NetSpec], thread_counts: Iterable[int], budget: TimingBudget, *, compiled: bool = False
) -> Iterator[Row]:
    """One row per network, task and thread count: seconds of each form, and their ratio to torchcaps."""
    work = [(net, count, task) for net in nets for count in thread_counts for task in TASKS]
    with progress_bar("networks", len(work)) as advance:
        for net, count, task in work:
            yield time_net(net, count, task, budget, forms_for(net, compiled=compiled))
            advance(1)


def time_net(net: NetSpec, thread_count: int, task: str, budget: TimingBudget, forms: Iterable[str]) -> Row:
    """One row of :func:`time_nets`.

    torch.compile is reset first: its code is specialized to one thread count, and after eight versions of a function
    it silently stops compiling.
    """
    torch.compiler.reset()
    with num_threads(thread_count):
        seconds = time_workloads({form: (net, form) for form in forms}, task, budget)
    return {
        **describe_net(net),
        "threads": thread_count,
        "task": task,
        "seconds": {form: quartiles(values) for form, values in seconds.items()},
        "times ours": {form: ratio(seconds, form, "torchcaps") for form in seconds if form != "torchcaps"},
    }


def time_workloads(
    jobs: dict[str, tuple[NetSpec, str]],
    task: str,
    budget: TimingBudget,
    clock: Callable[[], float] = time.perf_counter,
) -> Seconds:
    """Seconds of a task for several networks and forms, interleaved; ``clock`` as in time_interleaved."""
    workloads = {name: Workload(net, form) for name, (net, form) in jobs.items()}
    work = {name: partial(TASKS[task], workload) for name, workload in workloads.items()}
    net, _ = next(iter(jobs.values()))
    return time_interleaved(work, budget, f"{net.model}, {task}", clock)


def measure_memory(nets: Sequence[NetSpec], *, compiled: bool = False) -> Iterator[Row]:
    """One row per network: bytes of a training step in each form, each in a fresh process on one thread."""
    with progress_bar("networks", len(nets)) as advance:
        for net in nets:
            forms = forms_for(net, compiled=compiled)
            yield {**describe_net(net), "bytes": {form: step_memory(net, form) for form in forms}}
            advance(1)


def describe_net(net: NetSpec) -> Row:
    """The columns of a row that identify its network."""
    name = ", ".join([net.model, *_describe_options(net.options)])
    return {"model": name, "size": net.size, "batch": net.batch, "image": list(net.image_shape)}


def _describe_options(options: dict[str, Any], prefix: str = "") -> list[str]:
    """NAME=VALUE for each option, with dots in the names of nested ones."""
    found = list[str]()
    for name, value in options.items():
        nested = isinstance(value, dict)
        found += _describe_options(value, f"{prefix}{name}.") if nested else [f"{prefix}{name}={value}"]
    return found


# Layers like those of the models: input and output channels, map size, kernel, stride.
LAYERS = {
    "CapsNet's second, paper": (256, 256, 20, 9, 2),
    "CapsNet's second, laptop": (64, 64, 20, 9, 2),
    "CapsNet's second at 40 pixels": (256, 256, 32, 9, 2),
    "G-CapsNet's second of 7x7": (64, 128, 26, 7, 2),
    "LeNet's second": (20, 50, 12, 5, 1),
    "5x5 of many channels": (128, 128, 14, 5, 1),
    "3x3 of many channels": (128, 128, 14, 3, 1),
}
BATCHES = (8, 32, 128)
MODES = ("training", "attack", "inference")


def time_convolutions() -> list[Row]:
    """Seconds of PyTorch's and of FFT convolution for each layer, batch size and mode, on one thread."""
    rows: list[Row] = []
    with num_threads(1), progress_bar("convolutions", len(LAYERS) * len(BATCHES) * len(MODES)) as advance:
        for name, (inputs, outputs, size, kernel, stride) in LAYERS.items():
            for batch in BATCHES:
                for mode in MODES:
                    case = Case(batch, inputs, outputs, size, kernel, stride, mode, 1)
                    seconds = time_forms(case)
                    rows.append({"layer": name, **asdict(case), "seconds": seconds, "ratio": ratio_to_pytorch(seconds)})
                    advance(1)
    return rows


def write_measurement(folder: Path, name: str, values: dict[str, Any]) -> Path:
    """Write ``name``.json into the folder, with hardware and versions."""
    target = folder / f"{name}.json"
    write_json(target, values | {"environment": describe_environment()})
    return target


def write_rows(folder: Path, name: str, rows: Iterable[Row]) -> tuple[Path, list[Row]]:
    """Write rows as they are measured, so that an interrupted measurement keeps what it had."""
    so_far: list[Row] = []
    target = folder / f"{name}.json"
    for row in rows:
        so_far.append(row)
        target = write_measurement(folder, name, {"rows": so_far})
    return target, so_far
