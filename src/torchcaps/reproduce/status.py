"""How a list of work stands, for the command line: ours beside the paper's."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torchcaps.reproduce.estimate import Estimator, show_duration
from torchcaps.reproduce.intervals import mean_interval
from torchcaps.reproduce.jobs import Work, plan
from torchcaps.reproduce.results import CellResult
from torchcaps.reproduce.runner import Folders, State, found_result, is_trained, state_of
from torchcaps.reproduce.spec import PROFILES, Profile, list_papers, load_spec
from torchcaps.reproduce.tables import show_number, show_published

# MERGED What there is to do and what it takes, before anything is done.
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


PLAN_COLUMNS = ("paper", "table", "cell", "seed", "training", "state", "time")


def plan_rows(works: list[Work], folders: Folders) -> tuple[list[tuple[str, ...]], float]:
    """A row for each piece of work, and the seconds that all of it takes one worker."""
    todo = [work for work in works if state_of(work, folders.results) != "done"]
    estimates = Estimator(folders).seconds(todo)
    seconds = {id(work): estimate for work, estimate in zip(todo, estimates, strict=True)}
    users = Counter(training.path(folders.runs) for work in works for training in work.trainings)
    rows: list[tuple[str, ...]] = []
    for work in works:
        state = state_of(work, folders.results)
        time = "" if state == "done" else show_duration(seconds[id(work)])
        names = [name for name in (work.cell.training, *work.cell.others.values()) if name]
        trainings = [
            _training(name, each.path(folders.runs), users, is_trained(each, folders.runs))
            for name, each in zip(names, work.trainings, strict=True)
        ]
        rows.append((work.spec.paper, work.table, work.name, str(work.seed), ", ".join(trainings), state, time))
    return rows, sum(estimate or 0.0 for estimate in estimates)


@dataclass(frozen=True)
class TableState:
    """A table of a paper: how many numbers it has of its own, and how many of them are here."""

    paper: str
    table: str
    title: str
    cells: int
    wanted: dict[Profile, int]  # cells times seeds, for each profile
    done: dict[Profile, int]
    seconds: dict[Profile, float | None]  # of all of it from the beginning, for one worker


def table_states(folders: Folders) -> list[TableState]:
    """All tables of all papers. Nothing is trained for it: a time that nobody has measured is None."""
    found = []
    estimator = Estimator(folders, may_measure=False)
    for paper in list_papers():
        spec = load_spec(paper)
        for name, table in spec.tables.items():
            works = {profile: plan(spec, profile, tables=[name]) for profile in PROFILES}
            done = {profile: count_states(each, folders.results)["done"] for profile, each in works.items()}
            cells = sum(cell.measure is not None for cell in table.cells.values())
            wanted = {profile: len(each) for profile, each in works.items()}
            seconds = {profile: _total(estimator.seconds(each, anew=True)) for profile, each in works.items()}
            found.append(TableState(paper, name, table.title, cells, wanted, done, seconds))
    return found


def _total(seconds: list[float | None]) -> float | None:
    known = [each for each in seconds if each is not None]
    return sum(known) if len(known) == len(seconds) else None


def _training(name: str, path: Path, users: Counter[Path], trained: bool) -> str:
    if trained:
        return f"{name} (trained)"
    return f"{name} (shared)" if users[path] > 1 else name
