"""What there is to do for a table: one piece of work for each cell and seed, with all settings settled."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.reproduce.spec import PROFILES, Cell, Profile, Spec, Table, list_papers, load_spec
from torchcaps.train import RunConfig, resolve

# MERGED From names that a user gives to the work they mean.
# What decides how a run goes, but not what comes out of it.
IGNORED_SETTINGS = {"seed", "device", "devices", "nodes", "strategy", "save_minutes"}


@dataclass(frozen=True)
class TrainingJob:
    """A run to be made. One that is matched to another knows where to stop only when that one is trained."""

    config: RunConfig
    matched_to: RunConfig | None = None

    def fingerprint(self) -> str:
        """Of everything that decides the weights, but for the seed."""
        return digest([_decisive(config) for config in (self.config, self.matched_to) if config])

    def path(self, runs: Path) -> Path:
        """The folder of the run: cells and papers that need the same training share it."""
        data = self.config.data.replace(":", "-")
        return runs / f"{self.config.model}-{data}-{self.fingerprint()}-seed{self.config.seed}"


@dataclass(frozen=True)
class Job:
    """One cell with one seed: which runs it needs, and what is measured on them."""

    spec: Spec
    table: str
    name: str
    profile: Profile
    seed: int
    training: TrainingJob | None
    others: dict[str, TrainingJob]
    settings: dict[str, Any]  # of the measure

    @property
    def cell(self) -> Cell:
        return self.spec.tables[self.table].cells[self.name]

    @property
    def measure(self) -> str:
        assert self.cell.measure is not None  # cited cells are no work
        return self.cell.measure

    @property
    def trainings(self) -> list[TrainingJob]:
        """Every run that must be trained before the measure."""
        return [*filter(None, [self.training]), *self.others.values()]

    def fingerprint(self) -> str:
        """Of all that decides the value: a result with another one was made by other settings."""
        parts = {
            "training": self.training.fingerprint() if self.training else None,
            "others": {role: training.fingerprint() for role, training in self.others.items()},
            "measure": self.measure,
            "settings": self.settings,
        }
        return digest(parts)

    def result_file(self, results: Path) -> Path:
        """Where the result belongs."""
        return results / self.spec.paper / self.table / f"{self.name}-{self.profile}-seed{self.seed}.json"

    def __str__(self) -> str:
        return f"{self.spec.paper} {self.table} {self.name} (seed {self.seed})"


def training_job(spec: Spec, name: str, profile: Profile, seed: int) -> TrainingJob:
    """A training of a paper: the paper's defaults, its own settings, and what the profile changes."""
    training = spec.trainings[name]
    settings = {**spec.defaults.of(profile), **training.settings, **training.of(profile)}
    config = resolve(**settings, size=profile, seed=seed)
    if training.matched_to is None:
        return TrainingJob(config)
    return TrainingJob(config, training_job(spec, training.matched_to, profile, seed).config)


def plan_jobs(
    spec: Spec,
    profile: Profile,
    *,
    tables: Iterable[str] | None = None,
    cells: Iterable[str] | None = None,
    seeds: int | None = None,
) -> list[Job]:
    """Everything to be done for a paper, or some of its tables and cells; seeds: None for what each table asks."""
    chosen: dict[str, Table] = {name: spec.tables[name] for name in tables} if tables else spec.tables
    wanted = set(cells) if cells else None
    return [
        _job(spec, table, name, profile, seed)
        for table, found in chosen.items()
        for seed in range(seeds or found.seeds[profile])
        for name, cell in found.cells.items()
        if cell.measure and profile in cell.profiles and (wanted is None or name in wanted)
    ]


def _job(spec: Spec, table: str, name: str, profile: Profile, seed: int) -> Job:
    found = spec.tables[table]
    cell = found.cells[name]
    training = training_job(spec, cell.training, profile, seed) if cell.training else None
    others = {role: training_job(spec, other, profile, seed) for role, other in cell.others.items()}
    settings = {**found.settings.of(profile), **cell.settings}
    return Job(spec, table, name, profile, seed, training, others, settings)


def _decisive(config: RunConfig) -> dict[str, Any]:
    return {key: value for key, value in config.model_dump(mode="json").items() if key not in IGNORED_SETTINGS}


def digest(value: Any) -> str:
    """A short name for a value: equal ones have the same, others another."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]


EVERY_PAPER = "all"


def select_specs(paper: str) -> list[Spec]:
    """The spec of a paper, or all of them for 'all'."""
    return [load_spec(name) for name in (list_papers() if paper == EVERY_PAPER else [paper])]


def check_profile(name: str) -> Profile:
    """The profile of that name."""
    for profile in PROFILES:
        if profile == name:
            return profile
    raise unknown_name("profile", name, PROFILES)


def select_jobs(
    specs: Iterable[Spec], profile: Profile, *, table: str | None, cells: Sequence[str], seeds: int | None
) -> list[Job]:
    """What there is to do for some papers, or for a table or cells of one; every name is checked."""
    specs = list(specs)
    if len(specs) > 1 and (table or cells):
        raise TorchcapsError("a table or a cell belongs to one paper: name the paper instead of 'all'")
    jobs = []
    for spec in specs:
        if table and table not in spec.tables:
            raise unknown_name(f"table of {spec.paper}", table, spec.tables)
        tables = [table] if table else list(spec.tables)
        known = {name for each in tables for name in spec.tables[each].cells}
        for cell in cells:
            if cell not in known:
                raise unknown_name(f"cell of {' '.join([spec.paper, *([table] if table else [])])}", cell, known)
        jobs += plan_jobs(spec, profile, tables=tables, cells=cells, seeds=seeds)
    if not jobs:
        raise TorchcapsError(
            f"there is nothing to measure in profile {profile}: these cells are cited by the paper, or are measured in "
            "another profile; see 'torchcaps papers'"
        )
    return jobs
