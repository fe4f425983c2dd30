"""What there is to do and what it takes, before anything is done."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from torchcaps.reproduce.durations import show_duration
from torchcaps.reproduce.estimate import Estimator
from torchcaps.reproduce.runner import Folders, state_of
from torchcaps.reproduce.spec import PROFILES, Profile, list_papers, load_spec
from torchcaps.reproduce.summary import count_states
from torchcaps.reproduce.trained import is_trained
from torchcaps.reproduce.work import Work, plan

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
