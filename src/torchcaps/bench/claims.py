"""What the project claims about its speed, each as a ratio with a target that this machine can check."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchcaps.bench.timing import Budget, Seconds, Summary, ratio


@dataclass(frozen=True)
class Check:
    """A figure and what it should be.

    Args:
        what: in words, such as "training step, times the plain form".
        measured: the figure; None if it was not measured.
        low, high: where it should lie; None where there is no such bound. With neither, it is only reported.
        spread: of the rounds, where it is a ratio of times.
        note: why it was not measured, or what to know about it.
    """

    what: str
    measured: float | None
    low: float | None = None
    high: float | None = None
    spread: Summary | None = None
    note: str = ""

    @property
    def target(self) -> str:
        """The bounds in words."""
        if self.low is not None and self.high is not None:
            return f"{self.low:g} to {self.high:g}"
        if self.low is not None:
            return f"at least {self.low:g}"
        return "reported" if self.high is None else f"at most {self.high:g}"

    @property
    def met(self) -> bool | None:
        """Whether the figure lies where it should; None where nothing is asked or measured.

        >>> Check("ratio", 8.5, low=8).met, Check("ratio", 1.2, high=1.1).met, Check("ratio", 3.0).met
        (True, False, None)
        """
        if self.measured is None or (self.low is None and self.high is None):
            return None
        return (self.low is None or self.measured >= self.low) and (self.high is None or self.measured <= self.high)

    def as_row(self) -> dict[str, Any]:
        """For a result file."""
        row: dict[str, Any] = {"what": self.what, "measured": self.measured, "target": self.target, "met": self.met}
        row |= {"low": self.low, "high": self.high}
        return row | ({"spread": self.spread} if self.spread else {}) | ({"note": self.note} if self.note else {})


@dataclass(frozen=True)
class Settings:
    """What a case may be told: how long to measure, whether to compile, and how large its batches are.

    ``shrink`` divides all batches, to try out a case in little time; figures that count are measured with 1.
    """

    budget: Budget
    compiled: bool = False
    shrink: int = 1

    def batch(self, images: int) -> int:
        return max(1, images // self.shrink)


Case = Callable[[Settings], list[Check]]


def of_times(what: str, seconds: Seconds, name: str, base: str, *, note: str = "", **bounds: float) -> Check:
    """A check of what one job takes over what another takes; the note also tells both times."""
    medians = [1000 * statistics.median(seconds[job]) for job in (name, base)]
    times = " and ".join(f"{each:,.{0 if each >= 10 else 2}f} ms" for each in medians)
    found = ratio(seconds, name, base)
    return Check(what, found["median"], spread=found, note=f"{times}; {note}" if note else times, **bounds)
