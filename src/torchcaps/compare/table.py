"""The rows of a comparison. A column is a name and a function of one model's results: adding one is adding a line."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Results = list[dict[str, Any]]  # of one model, one per seed


@dataclass(frozen=True)
class Column:
    """A column of the table."""

    title: str
    show: Callable[[Results], str]


def mean(results: Results, key: str) -> float:
    """Mean over the seeds."""
    return statistics.fmean(result[key] for result in results)


def percent(key: str) -> Callable[[Results], str]:
    """Percentage, with the standard deviation over seeds where there are several."""

    def show(results: Results) -> str:
        text = f"{100 * mean(results, key):.2f}"
        return f"{text} ± {100 * statistics.stdev(r[key] for r in results):.2f}" if len(results) > 1 else text

    return show


COLUMNS = (
    Column("parameters", lambda results: f"{results[0]['parameters']:,}"),
    Column("training, s", lambda results: f"{mean(results, 'training_seconds'):.1f}"),
    Column("images/s", lambda results: f"{mean(results, 'images_per_second'):,.0f}"),
    Column("validation, %", percent("validation_accuracy")),
    Column("test, %", percent("test_accuracy")),
)
