"""The rows of a comparison. A column is a name and a function of one model's results: adding one is adding a line."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torchcaps.compare.robustness import ATTACKS, SHOWN, accuracy_under
from torchcaps.evaluate.matched import comparable

Results = list[dict[str, Any]]  # of one model, one per seed
SUSPECT = "⚠"  # stands beside a figure whose sanity checks failed
# What the table and the figures read from a run's result file.
NEEDED = (
    "seed", "parameters", "training_seconds", "images_per_second", "validation_accuracy", "test_accuracy",
    "test_images", "confusion", "environment",
)  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column of the table."""

    title: str
    show: Callable[[Results], str]
    matched: bool = False  # means something only where the model reached the accuracy that was to be matched


def percent(values: Iterable[float]) -> str:
    """The mean in percent, with the standard deviation over seeds where there are several."""
    shares = [100 * value for value in values]
    text = f"{statistics.fmean(shares):.2f}"
    return f"{text} ± {statistics.stdev(shares):.2f}" if len(shares) > 1 else text


def robust_columns(results: Sequence[Results]) -> list[Column]:
    """The columns about robustness for which some model has results."""
    found = [result.get("robustness") for each in results for result in each]
    tests = {name for each in found if each for name in each["tests"]}
    attacked = [each["attacked"] for each in found if each and each["attacked"]]
    chosen = []
    if "viewpoint" in tests:  # the novel sides are the test images
        show = _where("viewpoint", lambda r: percent(1 - t["familiar_error"] for t in r))
        chosen.append(Column("familiar sides, %", show, matched=True))
    if "affnist" in tests:
        chosen.append(Column("affine, %", _where("affnist", lambda r: percent(t["accuracy"] for t in r)), matched=True))
    if "multimnist" in tests:
        chosen.append(Column("digit error", _where("multimnist", _drawing_error), matched=True))
    for name in ATTACKS if attacked else ():
        epsilon = attacked[0]["attacks"][SHOWN]["epsilon"]
        chosen.append(Column(f"{name} {epsilon:.2g}, %", _under(name), matched=True))
    return chosen


def cells(chosen: Sequence[Column], results: Results) -> list[str]:
    """A model's row; what would not be a fair comparison is left out."""
    fair = comparable(results)
    return [column.show(results) if fair or not column.matched else "not matched" for column in chosen]


def _mean(results: Results, key: str) -> float:
    return statistics.fmean(result[key] for result in results)


def _where(test: str, show: Callable[[Results], str]) -> Callable[[Results], str]:
    """A figure from one of the tests; nothing where a run could not be put to it."""

    def shown(results: Results) -> str:
        found = [result["robustness"]["tests"].get(test) for result in results if result.get("robustness")]
        return show(found) if found and all(found) else ""

    return shown


def _drawing_error(tests: Results) -> str:
    errors = [test["drawing_error"] for test in tests]
    return f"{statistics.fmean(errors):.4f}" if None not in errors else ""


def _under(attack: str) -> Callable[[Results], str]:
    def shown(results: Results) -> str:
        found = [result["robustness"] for result in results if result.get("robustness")]
        if not found or not all(each["attacked"] for each in found):
            return ""
        mark = f" {SUSPECT}" if any(each["attacked"]["sanity"] for each in found) else ""
        return percent(accuracy_under(each, attack) for each in found) + mark

    return shown


COLUMNS = (
    Column("parameters", lambda results: f"{results[0]['parameters']:,}"),
    Column("training, s", lambda results: f"{_mean(results, 'training_seconds'):.1f}"),
    Column("images/s", lambda results: f"{_mean(results, 'images_per_second'):,.0f}"),
    Column("validation, %", lambda results: percent(result["validation_accuracy"] for result in results)),
    Column("test, %", lambda results: percent(result["test_accuracy"] for result in results), matched=True),
)
