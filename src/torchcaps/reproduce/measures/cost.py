"""Parameters and training time, which need no trained network. Times are measured alternately on one thread."""

from __future__ import annotations

import time

from torchcaps.bench.steps import time_workloads
from torchcaps.bench.timing import TimingBudget, num_threads, quartiles, ratio
from torchcaps.bench.workload import NetSpec
from torchcaps.data import datasets
from torchcaps.errors import TorchcapsError
from torchcaps.models import models
from torchcaps.reproduce.measures.registry import MeasureInput, Measurement, register_measure
from torchcaps.train import RunConfig
from torchcaps.train.sampler import steps_per_epoch

BUDGET = TimingBudget()
# Settings of a run that determine the number of parameters, and the time of a training step.
COUNTED = ("model", "size", "options", "image_shape", "class_names")
TIMED = (*COUNTED, "batch_size", "loss", "reconstruction", "reconstruction_weight")


@register_measure(
    "parameters",
    "count",
    "trained parameters of the network in profile paper, decoder included",
    network=COUNTED,
    exact=True,
)
def parameters(subject: MeasureInput) -> Measurement:
    return Measurement(_parameters(subject, ""))


@register_measure(
    "parameter-ratio",
    "ratio",
    "trained parameters in profile paper as a share of the other network's",
    network=COUNTED,
    exact=True,
)
def parameter_ratio(subject: MeasureInput) -> Measurement:
    """choi2019, abstract."""
    own, other = _parameters(subject, ""), _parameters(subject, "baseline")
    return Measurement(own / other, details={"parameters": {"own": own, "baseline": other}})


def _parameters(subject: MeasureInput, role: str) -> int:
    return sum(parameter.numel() for parameter in _config(subject, role).meta_model().parameters())


@register_measure(
    "step-time-ratio",
    "ratio",
    "median over rounds of the CPU time of a training step as a share of the other network's, each with its own batch",
    network=TIMED,
)
def step_time_ratio(subject: MeasureInput, form: str = "torchcaps") -> Measurement:
    """yang2021, figure 4. ``form`` is the implementation of both networks, see ``torchcaps.bench.workload.FORMS``."""
    return _timed(_config(subject, ""), _config(subject, "baseline"), (1, 1), form)


@register_measure(
    "epoch-time-ratio",
    "ratio",
    "the ratio of the CPU time of a training step, times that of the number of steps in an epoch of all images",
    network=(*TIMED, "data"),
)
def epoch_time_ratio(subject: MeasureInput, form: str = "torchcaps", size: str | None = None) -> Measurement:
    """choi2019, Table 1. In another ``size`` than that of the runs, both networks have the batch of their recipe."""
    own, other = _config(subject, ""), _config(subject, "baseline")
    if size is not None:
        own, other = (
            config.model_copy(update={"size": size, "batch_size": models.get(config.model).recipe.batch_size})
            for config in (own, other)
        )
    counts = [steps_per_epoch(datasets.get(each.data).splits["train"], each.batch_size) for each in (own, other)]
    return _timed(own, other, (counts[0], counts[1]), form)


def _config(subject: MeasureInput, role: str) -> RunConfig:
    if role not in subject.configs:
        raise TorchcapsError(
            "a cost is that of a training, and a ratio needs another one in the role 'baseline': name them in the cell "
            "of the spec"
        )
    return subject.configs[role]


def _timed(own: RunConfig, other: RunConfig, steps: tuple[int, int], form: str) -> Measurement:
    """Return the ratio of the times of two networks in one form, each with a number of steps.

    On one thread, CPU time leaves out only the time spent waiting for a core.
    """
    nets = {"own": bench_net(own), "baseline": bench_net(other)}
    with num_threads(1):
        jobs = {name: (net, form) for name, net in nets.items()}
        seconds = time_workloads(jobs, "training", BUDGET, time.process_time)
    factor, found = steps[0] / steps[1], ratio(seconds, "own", "baseline")
    details = {
        "step_seconds": {name: quartiles(values) for name, values in seconds.items()},
        "step_ratio": found,
        "steps": dict(zip(nets, steps, strict=True)),
        "batch": {name: net.batch for name, net in nets.items()},
        "form": form,
    }
    return Measurement(factor * found["median"], details=details)


def bench_net(config: RunConfig) -> NetSpec:
    """Return the network of a run for benchmarking with random images of the same shape."""
    channels, side, _ = config.image_shape
    minimised = {
        "loss": config.loss,
        "reconstruction": config.reconstruction,
        "reconstruction_weight": config.reconstruction_weight,
    }
    return NetSpec(
        config.model,
        config.size,
        config.batch_size,
        side,
        len(config.class_names),
        dict(config.options),
        channels,
        minimised,
    )
