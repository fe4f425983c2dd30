"""Jobs: one per cell and seed of a paper's tables, with all settings resolved."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.files import MOST_BYTES, read_text
from torchcaps.reproduce.measures import measures
from torchcaps.reproduce.spec import PROFILES, Cell, Profile, Spec, Table, list_papers, load_spec, parse_spec
from torchcaps.train import RunConfig, resolve

ALL_PAPERS = "all"
# benchmarks/side_by_side.py compares one thread per training with several threads for one training.
THREADS: dict[Profile, int] = {"desk": 1}  # per training; otherwise as many as the process has
# Settings that affect how a run is executed, but not its weights.
IGNORED_SETTINGS = {"seed", "device", "devices", "nodes", "strategy", "save_minutes"}
# Settings that older results do not have: at None they do not change a fingerprint.
LATER_SETTINGS = {"adversarial", "clip_norm", "weight_decay", "margin_pace", "balance", "start_from"}


@dataclass(frozen=True)
class TrainingJob:
    """A run to be trained. If it is matched to another run, its stopping point is known once that one is trained."""

    config: RunConfig
    matched_to: RunConfig | None = None

    def fingerprint(self) -> str:
        """Return a digest of all settings that determine the weights, except for the seed."""
        return digest([_relevant(config) for config in (self.config, self.matched_to) if config])

    def path(self, runs: Path) -> Path:
        """Return the run directory; cells and papers with the same training share it."""
        data = self.config.data.replace(":", "-")
        return runs / f"{self.config.model}-{data}-{self.fingerprint()}-seed{self.config.seed}"


@dataclass(frozen=True)
class Job:
    """One cell with one seed: the runs that it needs, and the measure with its settings."""

    spec: Spec
    table: str
    name: str
    profile: Profile
    seed: int
    training: TrainingJob | None
    others: dict[str, TrainingJob]
    settings: dict[str, Any]  # arguments of the measure

    @property
    def cell(self) -> Cell:
        return self.spec.tables[self.table].cells[self.name]

    @property
    def measure(self) -> str:
        assert self.cell.measure is not None  # no job is made of a cited cell
        return self.cell.measure

    @property
    def roles(self) -> dict[str, TrainingJob]:
        """The runs that the cell names, by role; its own run has the role ''."""
        return {"": self.training, **self.others} if self.training else dict(self.others)

    @property
    def needs_training(self) -> bool:
        """Whether runs must be trained before the measurement: counts and times need only their settings."""
        return bool(self.roles) and (self.measure not in measures or measures.get(self.measure).trained)

    @property
    def trainings(self) -> list[TrainingJob]:
        """All runs that must be trained before the measurement."""
        return list(self.roles.values()) if self.needs_training else []

    def fingerprint(self) -> str:
        """Return a digest of everything that determines the value; a result with another one is outdated."""
        parts = {
            "training": self._digest_run(self.training) if self.training else None,
            "others": {role: self._digest_run(training) for role, training in self.others.items()},
            "measure": self.measure,
            "settings": self.settings,
        }
        return digest(parts)

    def _digest_run(self, run: TrainingJob) -> str:
        """Return a digest of the settings of a run that determine the value."""
        if self.needs_training:
            return run.fingerprint()
        settings = run.config.model_dump(mode="json")
        return digest({name: settings[name] for name in measures.get(self.measure).network or ()})

    def result_file(self, results: Path) -> Path:
        """Return the path of the result file."""
        return results / self.spec.paper / self.table / f"{self.name}-{self.profile}-seed{self.seed}.json"

    def __str__(self) -> str:
        return f"{self.spec.paper} {self.table} {self.name} (seed {self.seed})"


def plan_jobs(
    spec: Spec,
    profile: Profile,
    *,
    tables: Iterable[str] | None = None,
    cells: Iterable[str] | None = None,
    seeds: int | None = None,
) -> list[Job]:
    """Return the jobs of a paper, or of some of its tables and cells; ``seeds`` defaults to the table's number.

    What is counted has one seed.
    """
    chosen: dict[str, Table] = {name: spec.tables[name] for name in tables} if tables else spec.tables
    wanted = set(cells) if cells else None
    return [
        _job(spec, table, name, profile, seed)
        for table, found in chosen.items()
        for seed in range(seeds or found.seeds[profile])
        for name, cell in found.cells.items()
        if cell.measure and profile in cell.profiles and (wanted is None or name in wanted)
        if seed == 0 or not _is_exact(cell)
    ]


def training_job(spec: Spec, name: str, profile: Profile, seed: int) -> TrainingJob:
    """Resolve a training: the paper's defaults, then its own settings, then the changes of the profile."""
    training = spec.trainings[name]
    size = "paper" if profile == "paper" else "laptop"
    settings = {"size": size, **spec.defaults.of(profile), **training.settings, **training.of(profile)}
    config = resolve(**settings, seed=seed)
    if training.matched_to is None:
        return TrainingJob(config)
    return TrainingJob(config, training_job(spec, training.matched_to, profile, seed).config)


def digest(value: Any) -> str:
    """Return a short SHA-256 digest of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]


def select_specs(paper: str) -> list[Spec]:
    """Load the spec of a paper, or of every paper for ``all``."""
    return [load_spec(name) for name in (list_papers() if paper == ALL_PAPERS else [paper])]


def load_spec_file(path: Path) -> Spec:
    """Load a spec from a file outside this package; its measures and their settings are checked as well."""
    spec = parse_spec(read_text(path, most=MOST_BYTES), str(path))
    if spec.paper in list_papers():
        raise TorchcapsError(f"{path}: '{spec.paper}' is a paper of this package: choose another name")
    for table in spec.tables.values():
        known = set[str]()
        for cell in table.cells.values():
            if cell.measure is not None:
                accepted = measures.get(cell.measure).settings
                known |= set(accepted)
                for name in cell.settings:
                    if name not in accepted:
                        raise unknown_name(f"setting of {cell.measure}", name, accepted)
        for name in (name for profile in PROFILES for name in table.settings.of(profile)):
            if name not in known:
                raise unknown_name(f"setting of '{table.title}'", name, known)
    return spec


def check_profile(name: str) -> Profile:
    """Return the profile with this name."""
    for profile in PROFILES:
        if profile == name:
            return profile
    raise unknown_name("profile", name, PROFILES)


def select_jobs(
    specs: Iterable[Spec],
    profile: Profile,
    *,
    table: str | None,
    cells: Sequence[str],
    seeds: int | None,
    without_training: bool = False,
) -> list[Job]:
    """Return the jobs of some papers, or of a table or some cells of one paper; all names are checked.

    ``without_training`` selects the cells that need no trained network.
    """
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
        planned = plan_jobs(spec, profile, tables=tables, cells=cells, seeds=seeds)
        jobs += [job for job in planned if not (without_training and job.needs_training)]
    if not jobs:
        raise TorchcapsError(
            f"there is nothing to measure in profile {profile}: these cells are cited by the paper, are measured in "
            "another profile, or need training; see 'torchcaps papers'"
        )
    return jobs


def _job(spec: Spec, table: str, name: str, profile: Profile, seed: int) -> Job:
    found = spec.tables[table]
    cell = found.cells[name]
    first = seed * cell.members  # ensembles of different seeds share no member
    # What the papers count are their own networks, whatever the profile trains.
    sizes = "paper" if _is_exact(cell) else profile
    training = training_job(spec, cell.training, sizes, first) if cell.training else None
    others = {role: training_job(spec, other, sizes, seed) for role, other in cell.others.items()}
    if cell.training:
        for member in range(1, cell.members):
            others[f"member-{member}"] = training_job(spec, cell.training, sizes, first + member)
    settings = {**found.settings.of(profile), **cell.settings}
    return Job(spec, table, name, profile, seed, training, others, settings)


def _is_exact(cell: Cell) -> bool:
    return cell.measure in measures and measures.get(cell.measure).exact  # type: ignore[arg-type]


def _relevant(config: RunConfig) -> dict[str, Any]:
    return {
        key: value
        for key, value in config.model_dump(mode="json").items()
        if key not in IGNORED_SETTINGS and not (key in LATER_SETTINGS and value is None)
    }
