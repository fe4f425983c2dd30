"""Cost relative to another network: parameters, and training time, timed alternately on one thread."""

from __future__ import annotations

from torchcaps.bench.steps import time_workloads
from torchcaps.bench.timing import TimingBudget, num_threads, quartiles, ratio
from torchcaps.bench.workload import NetSpec
from torchcaps.errors import TorchcapsError
from torchcaps.models import models
from torchcaps.reproduce.measures.accuracy import paper_parameters
from torchcaps.reproduce.measures.registry import MeasureInput, Measurement, register_measure
from torchcaps.train import RunConfig, RunFolder, training_splits
from torchcaps.train.sampler import steps_per_epoch

BUDGET = TimingBudget()


@register_measure(
    "step-time-ratio",
    "ratio",
    "median over rounds of the time of a training step as a share of the other network's, each with its own batch",
    presupposes_accuracy=False,
)
def step_time_ratio(subject: MeasureInput, form: str = "torchcaps") -> Measurement:
    """yang2021, figure 4. ``form`` is the implementation of both networks, see ``torchcaps.bench.workload.FORMS``."""
    return _timed(*_configs(subject), (1, 1), form)


@register_measure(
    "epoch-time-ratio",
    "ratio",
    "the ratio of the time of a training step, times that of the number of steps in an epoch",
    presupposes_accuracy=False,
)
def epoch_time_ratio(subject: MeasureInput, form: str = "torchcaps", size: str | None = None) -> Measurement:
    """choi2019, Table 1. In another ``size`` than that of the runs, both networks have the batch of their recipe."""
    own, other = _configs(subject)
    if size is not None:
        own, other = (
            config.model_copy(update={"size": size, "batch_size": models.get(config.model).recipe.batch_size})
            for config in (own, other)
        )
    counts = [steps_per_epoch(len(training_splits(config)[0]), config.batch_size) for config in (own, other)]
    return _timed(own, other, (counts[0], counts[1]), form)


@register_measure(
    "parameter-ratio",
    "ratio",
    "trained parameters in the size of the paper as a share of the other network's",
    presupposes_accuracy=False,
)
def parameter_ratio(subject: MeasureInput) -> Measurement:
    """choi2019, abstract."""
    own, other = (paper_parameters(config) for config in _configs(subject))
    return Measurement(own / other, details={"parameters": {"own": own, "baseline": other}})


def _configs(subject: MeasureInput) -> tuple[RunConfig, RunConfig]:
    run: RunFolder = subject.run
    if "baseline" not in subject.others:
        raise TorchcapsError(f"the cost of {run.path.name} is a share of another's: name it in the role 'baseline'")
    return run.config(), subject.others["baseline"].config()


def _timed(own: RunConfig, other: RunConfig, steps: tuple[int, int], form: str) -> Measurement:
    """Return the ratio of the times of two networks in one form, each with a number of steps."""
    nets = {"own": bench_net(own), "baseline": bench_net(other)}
    with num_threads(1):
        seconds = time_workloads({name: (net, form) for name, net in nets.items()}, "training", BUDGET)
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
