"""Optimizers and learning rate schedules by name, with what a checkpoint stores of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor, nn, optim

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.registry import Registry
from torchcaps.train.muon import ADAM_STATE, Muon, state_of

if TYPE_CHECKING:
    from torchcaps.train.config import RunConfig

Schedule = Callable[[int], float]  # the learning rate at a step
DECAY_FROM = 0.3  # fraction of the steps after which one-cycle decays


@dataclass(frozen=True)
class OptimizerRecord:
    """An optimizer by name. ``state`` gives the tensors that it keeps for a parameter, which a checkpoint holds."""

    name: str
    description: str
    kind: type[optim.Optimizer]
    build: Callable[[Iterable[nn.Parameter], float], optim.Optimizer]
    state: Callable[[Tensor], frozenset[str]]


optimizers: Registry[OptimizerRecord] = Registry("optimizer")
optimizers.add(
    OptimizerRecord(
        "adam",
        "Adam with betas 0.9 and 0.999",
        optim.Adam,
        lambda parameters, rate: optim.Adam(parameters, lr=rate, fused=True),
        lambda parameter: ADAM_STATE,
    )
)
optimizers.add(
    OptimizerRecord(
        "adamw",
        "Adam with decoupled weight decay 0.01",
        optim.AdamW,
        lambda parameters, rate: optim.AdamW(parameters, lr=rate, weight_decay=0.01, fused=True),
        lambda parameter: ADAM_STATE,
    )
)
optimizers.add(
    OptimizerRecord(
        "rmsprop",
        "RMSprop with alpha 0.9",
        optim.RMSprop,
        lambda parameters, rate: optim.RMSprop(parameters, lr=rate, alpha=0.9),
        lambda parameter: frozenset({"step", "square_avg"}),
    )
)
optimizers.add(
    OptimizerRecord(
        "sgd",
        "Stochastic gradient descent with momentum 0.9",
        optim.SGD,
        lambda parameters, rate: optim.SGD(parameters, lr=rate, momentum=0.9),
        lambda parameter: frozenset({"momentum_buffer"}),
    )
)
optimizers.add(
    OptimizerRecord(
        "muon",
        "Muon for kernels of convolutions, Adam for other parameters",
        Muon,
        Muon,
        state_of,
    )
)

# For each schedule, how it is written and what it does to the learning rate.
SCHEDULES = {
    "constant": "constant",
    "inverse": "inverse:GAMMA:POWER, the rate times (1 + GAMMA step)^-POWER",
    "exponential": "exponential:FACTOR:EVERY, the rate times FACTOR^(step / EVERY)",
    "step": "step:FACTOR:EVERY, the rate times FACTOR once every EVERY steps",
    "one-cycle": "one-cycle:PEAK:WARMUP, linear warm-up over the fraction WARMUP of all steps to the rate PEAK, "
    "constant until 30 % of them, then linear decay to 0",
}


def make_optimizer(model: nn.Module, config: RunConfig) -> optim.Optimizer:
    """Build the optimizer of a run; the training loop sets its learning rate at every step."""
    optimizer = optimizers.get(config.optimizer).build(model.parameters(), config.learning_rate)
    if isinstance(optimizer, Muon):
        optimizer.split_kernels(model)
    if config.weight_decay is not None:
        for group in optimizer.param_groups:
            group["weight_decay"] = config.weight_decay
    return optimizer


def state_names(optimizer: optim.Optimizer) -> list[frozenset[str]]:
    """Names of the tensors that an optimizer keeps, for each of its parameters."""
    state = next(record.state for record in optimizers if record.kind is type(optimizer))
    return [state(parameter) for group in optimizer.param_groups for parameter in group["params"]]


def make_schedule(text: str, learning_rate: float = 1.0, steps: int = 1) -> Schedule:
    """Parse a schedule into a function from the step to the learning rate.

    A schedule is text, so that the config of a run holds all of it, and a pure function of the step, so that a
    resumed run needs no state.

    Args:
        text: one of the schedules in ``SCHEDULES``.
        learning_rate: the rate that the schedule multiplies; ``one-cycle`` has its own.
        steps: number of steps of the whole run.

    >>> make_schedule("step:0.5:1000", learning_rate=0.01)(2500)
    0.0025
    >>> [make_schedule("one-cycle:0.01:0.1", steps=100)(step) for step in (4, 20, 65)]
    [0.005, 0.01, 0.005]
    """
    name, *values = text.split(":")
    if name not in SCHEDULES:
        raise unknown_name("schedule", name, SCHEDULES)
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        numbers = []
    if name == "constant" and not values:
        return lambda step: learning_rate
    if name == "constant" or len(numbers) != 2 or not all(0 < number < float("inf") for number in numbers):
        raise TorchcapsError(f"schedule '{text}' should be written as {SCHEDULES[name]}, with positive numbers")
    first, second = numbers
    if name == "one-cycle":
        if second >= 1:
            raise TorchcapsError(f"schedule '{text}' should be written as {SCHEDULES[name]}: WARMUP must be below 1")
        decay_steps = steps * (1 - max(DECAY_FROM, second))
        return lambda step: first * max(min((step + 1) / (second * steps), 1.0, (steps - step) / decay_steps), 0.0)
    if name == "inverse":
        return lambda step: learning_rate * float((1 + first * step) ** -second)
    if name == "exponential":
        return lambda step: learning_rate * float(first ** (step / second))
    return lambda step: learning_rate * float(first ** (step // second))


def peak_rate(schedule: str) -> float | None:
    """Return the learning rate that a one-cycle schedule contains; None for other schedules."""
    name, *values = schedule.split(":")
    return float(values[0]) if name == "one-cycle" else None
