"""Learning rates as pure functions of the step, written as text so that a run's settings hold them."""

from __future__ import annotations

from collections.abc import Callable

from torchcaps.errors import TorchcapsError, unknown_name

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
