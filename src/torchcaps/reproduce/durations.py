"""Durations as people write them."""

from __future__ import annotations

import re

from torchcaps.errors import TorchcapsError

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(text: str) -> float:
    """Seconds of a duration such as 90s, 30m, 2h or 1h30m.

    >>> parse_duration("90s"), parse_duration("1h30m"), parse_duration("0.5h")
    (90.0, 5400.0, 1800.0)
    """
    if not re.fullmatch(r"(\d+(\.\d+)?[smhd])+", text):
        raise TorchcapsError(f"duration '{text}' is not one: write it like 90s, 30m, 2h or 1h30m")
    return sum(float(number) * SECONDS[unit] for number, _, unit in re.findall(r"(\d+(\.\d+)?)([smhd])", text))


def show_duration(seconds: float | None) -> str:
    """A duration in its largest unit and the next one, if that is not zero; None is one that nobody knows.

    >>> show_duration(7), show_duration(192.4), show_duration(7260), show_duration(90000), show_duration(None)
    ('7 s', '3 min 12 s', '2 h 1 min', '1 d 1 h', '?')
    >>> show_duration(0), show_duration(86400 + 60)
    ('0 s', '1 d')
    """
    if seconds is None:
        return "?"
    amounts, left = list[tuple[int, str]](), round(seconds)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        amount, left = divmod(left, length)
        if amounts or amount or unit == "s":
            amounts.append((amount, unit))
    first, *others = amounts
    return " ".join(f"{amount} {unit}" for amount, unit in [first, *(each for each in others[:1] if each[0])])
