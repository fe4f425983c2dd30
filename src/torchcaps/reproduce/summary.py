"""How a list of work stands, for the command line: ours beside the paper's."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from torchcaps.reproduce.intervals import mean_interval
from torchcaps.reproduce.results import CellResult
from torchcaps.reproduce.runner import State, found_result, state_of
from torchcaps.reproduce.tables import show_number, show_published
from torchcaps.reproduce.work import Work

COLUMNS = ("row", "column", "ours", "paper", "seeds", "warnings")
FIGURES = 4  # how many columns of them are numbers


def count_states(works: Iterable[Work], results: Path) -> dict[State, int]:
    """How many cells are done, failed or open."""
    counted = Counter(state_of(work, results) for work in works)
    return {"done": counted["done"], "failed": counted["failed"], "open": counted["open"]}


def summary_rows(works: Iterable[Work], results: Path) -> dict[str, list[tuple[str, ...]]]:
    """The rows of each table, by its title: a cell's mean over seeds with its 95 % interval, and the paper's value."""
    cells: dict[tuple[str, str, str], list[Work]] = {}
    for work in works:
        cells.setdefault((work.spec.paper, work.table, work.name), []).append(work)
    tables: dict[str, list[tuple[str, ...]]] = {}
    for (paper, table, _), seeds in cells.items():
        title = f"{paper} {table}: {seeds[0].spec.tables[table].title} (profile {seeds[0].profile})"
        tables.setdefault(title, []).append(_row(seeds, results))
    return tables


def _row(seeds: list[Work], results: Path) -> tuple[str, ...]:
    cell = seeds[0].cell
    found = [result for work in seeds if (result := found_result(work, results)) is not None]
    good = [result for result in found if result.error is None]
    paper = "" if cell.published is None else show_published(cell.published)
    warnings = len({warning for result in good for warning in result.warnings})
    return (cell.row, cell.column, _ours(good, found), paper, f"{len(good)}/{len(seeds)}", str(warnings or ""))


def _ours(good: list[CellResult], found: list[CellResult]) -> str:
    if not good:
        return "failed" if found else ""
    values = [result.value for result in good if result.value is not None]
    if not values:
        return "see its picture" if good[0].picture else "see its file"
    unit = good[0].unit
    spread = f" ± {show_number(mean_interval(values).half, unit)}" if len(values) > 1 else ""
    return f"{show_number(statistics.fmean(values), unit)}{spread} {unit}"
