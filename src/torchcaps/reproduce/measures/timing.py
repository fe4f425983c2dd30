"""Training time relative to another network; both are timed alternately on one thread."""

from __future__ import annotations

from torchcaps.bench.steps import time_workloads
from torchcaps.bench.timing import TimingBudget, num_threads, quartiles, ratio
from torchcaps.bench.workload import NetSpec
from torchcaps.errors import TorchcapsError
from torchcaps.reproduce.measures.registry import MeasureInput, Measurement, register_measure
from torchcaps.train import RunConfig, RunFolder, training_splits
from torchcaps.train.sampler import steps_per_epoch

BUDGET = TimingBudget()


@register_measure(
    "step-time-ratio",
    "ratio",
    "median over rounds of the time of a training step as a share of the other network's, each with its own batch",
)
def step_time_ratio(subject: MeasureInput) -> Measurement:
    """yang2021, figure 4."""
    return _timed(*_configs(subject), (1, 1))


@register_measure(
    "epoch-time-ratio",
    "ratio",
    "the ratio of the time of a training step, times that of the number of steps in an epoch",
)
def epoch_time_ratio(subject: MeasureInput) -> Measurement:
    """choi2019, Table 1."""
    own, other = _configs(subject)
    counts = [steps_per_epoch(len(training_splits(config)[0]), config.batch_size) for config in (own, other)]
    return _timed(own, other, (counts[0], counts[1]))


def _configs(subject: MeasureInput) -> tuple[RunConfig, RunConfig]:
    run: RunFolder = subject.run
    if "baseline" not in subject.others:
        raise TorchcapsError(f"the time of {run.path.name} is a share of another's: name it in the role 'baseline'")
    return run.config(), subject.others["baseline"].config()


def _timed(own: RunConfig, other: RunConfig, steps: tuple[int, int]) -> Measurement:
    """Return the ratio of the times of two networks, each with a number of steps."""
    nets = {"own": bench_net(own), "baseline": bench_net(other)}
    with num_threads(1):
        seconds = time_workloads({name: (net, "torchcaps") for name, net in nets.items()}, "training", BUDGET)
    factor, found = steps[0] / steps[1], ratio(seconds, "own", "baseline")
    details = {
        "step_seconds": {name: quartiles(values) for name, values in seconds.items()},
        "step_ratio": found,
        "steps": dict(zip(nets, steps, strict=True)),
        "batch": {name: net.batch for name, net in nets.items()},
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
