"""A measured figure with its target, and the settings of the cases of ``torchcaps bench claims``."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchcaps.bench.timing import Seconds, Summary, TimingBudget, ratio


@dataclass(frozen=True)
class Check:
    """A measured figure and its target.

    Args:
        what: description, such as "310K, step: plain / ours".
        measured: the figure; None if it was not measured.
        low, high: bounds of the target; None where there is none. Without either, the figure is only reported.
        spread: quartiles over the rounds, for ratios of times.
        note: why it was not measured, or other remarks.
    """

    what: str
    measured: float | None
    low: float | None = None
    high: float | None = None
    spread: Summary | None = None
    note: str = ""

    @property
    def target(self) -> str:
        """The target as text."""
        if self.low is not None and self.high is not None:
            return f"{self.low:g} to {self.high:g}"
        if self.low is not None:
            return f"at least {self.low:g}"
        return "reported" if self.high is None else f"at most {self.high:g}"

    @property
    def met(self) -> bool | None:
        """Whether the target is met; None without a target or a measurement.

        >>> Check("ratio", 8.5, low=8).met, Check("ratio", 1.2, high=1.1).met, Check("ratio", 3.0).met
        (True, False, None)
        """
        if self.measured is None or (self.low is None and self.high is None):
            return None
        return (self.low is None or self.measured >= self.low) and (self.high is None or self.measured <= self.high)

    def as_row(self) -> dict[str, Any]:
        """The check as a row of a result file."""
        row: dict[str, Any] = {"what": self.what, "measured": self.measured, "target": self.target, "met": self.met}
        row |= {"low": self.low, "high": self.high}
        return row | ({"spread": self.spread} if self.spread else {}) | ({"note": self.note} if self.note else {})


@dataclass(frozen=True)
class ClaimSettings:
    """ClaimSettings of a case: time limits, whether to measure torch.compile, a divisor of batch sizes, and the device.

    ``shrink`` is for trial runs; published figures are measured with 1.
    """

    budget: TimingBudget
    compiled: bool = False
    shrink: int = 1
    device: str = "cpu"

    def batch(self, images: int) -> int:
        return max(1, images // self.shrink)


Case = Callable[[ClaimSettings], list[Check]]


def ratio_check(what: str, seconds: Seconds, name: str, base: str, *, note: str = "", **bounds: float) -> Check:
    """A check of the ratio of two jobs' times; the note has both times."""
    medians = [1000 * statistics.median(seconds[job]) for job in (name, base)]
    times = " and ".join(f"{each:,.{0 if each >= 10 else 2}f} ms" for each in medians)
    found = ratio(seconds, name, base)
    return Check(what, found["median"], spread=found, note=f"{times}; {note}" if note else times, **bounds)
