"""Fair timing on a noisy machine."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from torchcaps.progress import progress_bar

FEWEST_ROUNDS = 3  # a limit of time never cuts below this, so that there is a middle

Seconds = dict[str, list[float]]
Summary = dict[str, float]


@dataclass(frozen=True)
class Budget:
    """How long one comparison may take: at most so many rounds, and no new one after so many seconds."""

    rounds: int = 9
    seconds: float = 60.0


def interleaved(
    jobs: Mapping[str, Callable[[], object]],
    budget: Budget,
    description: str = "measuring",
    clock: Callable[[], float] = time.perf_counter,
) -> Seconds:
    """Seconds of each job in each round. All jobs run in every round, so that noise hits them alike.

    Each job runs once before anything is counted: compilation and fresh memory are no part of a step. For jobs of a
    millisecond on one thread ``clock`` may be ``time.process_time``: they never wait for a core by that.
    """
    seconds: Seconds = {name: [] for name in jobs}
    with progress_bar(description, (1 + budget.rounds) * len(jobs)) as advance:
        for job in jobs.values():
            job()
            advance(1)
        began = time.perf_counter()
        for number in range(budget.rounds):
            if number >= FEWEST_ROUNDS and time.perf_counter() - began > budget.seconds:
                break
            for name, job in jobs.items():
                start = clock()
                job()
                seconds[name].append(clock() - start)
                advance(1)
    return seconds


def summary(values: list[float]) -> Summary:
    """The median, with the quarters on both sides of it.

    >>> summary([3.0, 1.0, 2.0])
    {'median': 2.0, 'lower_quartile': 1.5, 'upper_quartile': 2.5, 'rounds': 3}
    """
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return {"median": middle, "lower_quartile": low, "upper_quartile": high, "rounds": len(values)}


def ratio(seconds: Seconds, name: str, base: str) -> Summary:
    """Of two jobs, round by round: neighbours in time have met the same noise.

    >>> ratio({"slow": [2.0, 6.0, 4.0], "fast": [1.0, 2.0, 2.0]}, "slow", "fast")["median"]
    2.0
    """
    return summary([a / b for a, b in zip(seconds[name], seconds[base], strict=True)])


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute on so many threads while the block runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
