"""The optimiser of a run, and what it must not be given."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import nn, optim

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.train.checkpoint import full_tensor

if TYPE_CHECKING:
    from torchcaps.train.config import RunConfig


# MERGED Learning rates as pure functions of the step, written as text so that a run's settings hold the
def make_optimizer(model: nn.Module, config: RunConfig) -> optim.Optimizer:
    """The optimiser by name; its learning rate is set anew at every step."""
    if config.optimizer == "rmsprop":
        return optim.RMSprop(model.parameters(), lr=config.learning_rate, alpha=0.9)
    return optim.Adam(model.parameters(), lr=config.learning_rate, fused=True)


def nonfinite_reason(loss: float, model: nn.Module) -> str | None:
    """One phrase if the loss or a gradient is not finite, else None."""
    if not math.isfinite(loss):
        return f"the loss became {loss}"
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    norm = full_tensor(nn.utils.get_total_norm(gradients))
    return None if torch.isfinite(norm) else f"the gradient became {norm.item()}"


Schedule = Callable[[int], float]
FORMS = {
    "constant": "constant",
    "inverse": "inverse:GAMMA:POWER, the rate times (1 + GAMMA step)^-POWER",
    "exponential": "exponential:FACTOR:EVERY, the rate times FACTOR^(step / EVERY)",
    "step": "step:FACTOR:EVERY, the rate times FACTOR once every EVERY steps",
}


def make_schedule(text: str) -> Schedule:
    """From text to the factor on the learning rate at a step.

    >>> make_schedule("step:0.5:1000")(2500)
    0.25
    """
    name, *values = text.split(":")
    if name not in FORMS:
        raise unknown_name("schedule", name, FORMS)
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        numbers = []
    if name == "constant" and not values:
        return lambda step: 1.0
    if name == "constant" or len(numbers) != 2 or not all(0 < number < float("inf") for number in numbers):
        raise TorchcapsError(f"schedule '{text}' should be written as {FORMS[name]}, with positive numbers")
    first, second = numbers
    if name == "inverse":
        return lambda step: float((1 + first * step) ** -second)
    if name == "exponential":
        return lambda step: float(first ** (step / second))
    return lambda step: float(first ** (step // second))
