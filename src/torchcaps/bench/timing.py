"""Timing that is fair on a noisy machine: jobs run interleaved, and medians are compared."""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch

from torchcaps.progress import progress_bar

FEWEST_ROUNDS = 3  # run even when the time limit is reached, so that there is a median

Seconds = dict[str, list[float]]
Summary = dict[str, float]


@dataclass(frozen=True)
class TimingBudget:
    """Limits of one comparison: the maximum number of rounds, and the seconds after which no new round starts."""

    rounds: int = 9
    seconds: float = 60.0


def time_interleaved(
    jobs: Mapping[str, Callable[[], object]],
    budget: TimingBudget,
    description: str = "measuring",
    clock: Callable[[], float] = time.perf_counter,
) -> Seconds:
    """Seconds of each job in each round. All jobs run in every round, so that noise affects them equally.

    The order is another one in every round, because a job's time depends on what the one before left in the caches.
    Each job first runs once without being timed, as a warm-up. For single-threaded jobs of about a millisecond,
    ``clock`` can be ``time.process_time``, which excludes time spent waiting for a core.
    """
    seconds: Seconds = {name: [] for name in jobs}
    order = random.Random(0)
    with progress_bar(description, (1 + budget.rounds) * len(jobs)) as advance:
        for job in jobs.values():
            job()
            advance(1)
        began = time.perf_counter()
        for number in range(budget.rounds):
            if number >= FEWEST_ROUNDS and time.perf_counter() - began > budget.seconds:
                break
            for name in order.sample(list(jobs), len(jobs)):
                start = clock()
                jobs[name]()
                seconds[name].append(clock() - start)
                advance(1)
    return seconds


def quartiles(values: list[float]) -> Summary:
    """Median, quartiles and number of the values.

    >>> quartiles([3.0, 1.0, 2.0])
    {'median': 2.0, 'lower_quartile': 1.5, 'upper_quartile': 2.5, 'rounds': 3}
    """
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3
    return {"median": middle, "lower_quartile": low, "upper_quartile": high, "rounds": len(values)}


def ratio(seconds: Seconds, name: str, base: str) -> Summary:
    """Quartiles of the ratio of two jobs, computed round by round: runs next to each other saw the same noise.

    >>> ratio({"slow": [2.0, 6.0, 4.0], "fast": [1.0, 2.0, 2.0]}, "slow", "fast")["median"]
    2.0
    """
    return quartiles([a / b for a, b in zip(seconds[name], seconds[base], strict=True)])


@contextlib.contextmanager
def num_threads(count: int) -> Iterator[None]:
    """Set PyTorch's number of threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
