"""Fair timing on a noisy machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torchcaps.environment import describe_environment
from torchcaps.files import write_json

RESULTS = Path(__file__).parents[1] / "results" / "bench"


def interleaved(jobs: dict[str, Callable[[], object]], rounds: int, warmup: int = 2) -> dict[str, list[float]]:
    """Seconds of each job in each round. All jobs run in every round, so that noise hits them alike."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(warmup + rounds):
        for name, job in jobs.items():
            began = time.perf_counter()
            job()
            if number >= warmup:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def ratio(seconds: dict[str, list[float]], name: str, base: str) -> dict[str, float]:
    """Median of the round-by-round ratios, with the quarters on both sides of it."""
    each = [a / b for a, b in zip(seconds[name], seconds[base], strict=True)]
    low, middle, high = statistics.quantiles(each, n=4)
    return {"median": middle, "lower_quartile": low, "upper_quartile": high, "rounds": len(each)}


def write_result(name: str, values: dict[str, Any]) -> None:
    """Keep what was measured, with what it was measured on."""
    write_json(RESULTS / f"{name}.json", values | {"environment": describe_environment()})
