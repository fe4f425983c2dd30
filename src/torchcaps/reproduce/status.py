"""Plans and results of jobs as rows for the command line."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchcaps.analysis.intervals import mean_interval
from torchcaps.reproduce.estimate import Estimator, format_duration
from torchcaps.reproduce.jobs import Job, plan_jobs
from torchcaps.reproduce.results import CellResult
from torchcaps.reproduce.runner import Folders, State, current_result, is_trained, job_state
from torchcaps.reproduce.spec import PROFILES, Profile, list_papers, load_spec
from torchcaps.reproduce.tables import format_published, format_value

COLUMNS = ("row", "column", "ours", "paper", "seeds", "warnings")
FIGURES = 4  # number of numeric columns


def count_states(jobs: Iterable[Job], results: Path) -> dict[State, int]:
    """Count the jobs that are done, failed or open."""
    counted = Counter(job_state(job, results) for job in jobs)
    return {"done": counted["done"], "failed": counted["failed"], "open": counted["open"]}


def summary_rows(jobs: Iterable[Job], results: Path) -> dict[str, list[tuple[str, ...]]]:
    """Return the rows of each table by its title: mean over seeds, 95 % interval and published value."""
    cells: dict[tuple[str, str, str], list[Job]] = {}
    for job in jobs:
        cells.setdefault((job.spec.paper, job.table, job.name), []).append(job)
    tables: dict[str, list[tuple[str, ...]]] = {}
    for (paper, table, _), seeds in cells.items():
        title = f"{paper} {table}: {seeds[0].spec.tables[table].title} (profile {seeds[0].profile})"
        tables.setdefault(title, []).append(_row(seeds, results))
    return tables


def _row(seeds: list[Job], results: Path) -> tuple[str, ...]:
    cell = seeds[0].cell
    found = [result for job in seeds if (result := current_result(job, results)) is not None]
    good = [result for result in found if result.error is None]
    paper = "" if cell.published is None else format_published(cell.published)
    warnings = len({warning for result in good for warning in result.warnings})
    return (cell.row, cell.column, _ours(good, found), paper, f"{len(good)}/{len(seeds)}", str(warnings or ""))


def _ours(good: list[CellResult], found: list[CellResult]) -> str:
    if not good:
        return "failed" if found else ""
    values = [result.value for result in good if result.value is not None]
    if not values:
        return "see the image" if good[0].picture else "see the file"
    unit = good[0].unit
    spread = f" ± {format_value(mean_interval(values).half_width, unit)}" if len(values) > 1 else ""
    return f"{format_value(statistics.fmean(values), unit)}{spread} {unit}"


PLAN_COLUMNS = ("paper", "table", "cell", "seed", "training", "state", "time")


def plan_rows(jobs: list[Job], folders: Folders) -> tuple[list[tuple[str, ...]], list[float | None]]:
    """Return a row for each job, and its seconds: 0 if it is done, None if unknown."""
    todo = [job for job in jobs if job_state(job, folders.results) != "done"]
    estimates = Estimator(folders).seconds(todo)
    seconds = {id(job): estimate for job, estimate in zip(todo, estimates, strict=True)}
    users = Counter(training.path(folders.runs) for job in jobs for training in job.trainings)
    rows: list[tuple[str, ...]] = []
    for job in jobs:
        state = job_state(job, folders.results)
        time = "" if state == "done" else format_duration(seconds[id(job)])
        trainings = [
            _training(name, each.path(folders.runs), users, is_trained(each, folders.runs))
            for name, each in zip(job.cell.all_trainings, job.trainings, strict=False)
        ]
        rows.append((job.spec.paper, job.table, job.name, str(job.seed), ", ".join(trainings), state, time))
    return rows, [seconds.get(id(job), 0.0) for job in jobs]


CELL_COLUMNS = ("cell", "seeds", "done", "time")


def cell_rows(plan: Sequence[Sequence[str]], seconds: Sequence[float | None]) -> dict[str, list[tuple[str, ...]]]:
    """Group the rows of :func:`plan_rows` by table: a row for each cell, over its seeds."""
    tables: dict[str, dict[str, list[tuple[str, float | None]]]] = {}
    for (paper, table, cell, _, _, state, _), each in zip(plan, seconds, strict=True):
        tables.setdefault(f"{paper} {table}", {}).setdefault(cell, []).append((state, each))
    return {title: [_cell_row(name, jobs) for name, jobs in cells.items()] for title, cells in tables.items()}


def _cell_row(name: str, jobs: list[tuple[str, float | None]]) -> tuple[str, ...]:
    states = Counter(state for state, _ in jobs)
    left = [each for state, each in jobs if state != "done"]
    known = [each for each in left if each is not None]
    time = "" if not left else format_duration(sum(known) if len(known) == len(left) else None)
    failed = f", {states['failed']} failed" if states["failed"] else ""
    return (name, str(len(jobs)), f"{states['done']}{failed}", time)


@dataclass(frozen=True)
class TableState:
    """Progress of one table of a paper."""

    paper: str
    table: str
    title: str
    cells: int
    wanted: dict[Profile, int]  # cells times seeds
    done: dict[Profile, int]
    seconds: dict[Profile, float | None]  # for all of it with one worker


def table_states(folders: Folders) -> list[TableState]:
    """Return the progress of every table of every paper. Nothing is timed: an unknown duration is None."""
    found = []
    estimator = Estimator(folders, may_measure=False)
    for paper in list_papers():
        spec = load_spec(paper)
        for name, table in spec.tables.items():
            jobs = {profile: plan_jobs(spec, profile, tables=[name]) for profile in PROFILES}
            done = {profile: count_states(each, folders.results)["done"] for profile, each in jobs.items()}
            cells = sum(cell.measure is not None for cell in table.cells.values())
            wanted = {profile: len(each) for profile, each in jobs.items()}
            seconds = {profile: _total(estimator.seconds(each, include_trained=True)) for profile, each in jobs.items()}
            found.append(TableState(paper, name, table.title, cells, wanted, done, seconds))
    return found


def _total(seconds: list[float | None]) -> float | None:
    known = [each for each in seconds if each is not None]
    return sum(known) if len(known) == len(seconds) else None


def _training(name: str, path: Path, users: Counter[Path], trained: bool) -> str:
    if trained:
        return f"{name} (trained)"
    return f"{name} (shared)" if users[path] > 1 else name
