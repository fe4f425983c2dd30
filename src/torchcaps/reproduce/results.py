"""A result of a cell, as a file: whole, checked when it is read, and enough to say where the number comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.files import read_json, read_yaml, write_json
from torchcaps.reproduce.jobs import plan_jobs
from torchcaps.reproduce.spec import PROFILES, Cell, Profile, Spec

# MERGED What a results folder holds about a paper, cell by cell: nothing here measures anything.
# Far beyond what any measure gives, and small enough for sums and squares of it.
Number = Annotated[float, Field(ge=-1e15, le=1e15, allow_inf_nan=False, strict=True)]
Seconds = Annotated[Number, Field(ge=0)]


class TrainingBudget(BaseModel):
    """The settings of a training that stand under a table."""

    data: str = ""
    epochs: int = Field(ge=1, lt=1 << 53, strict=True)
    train_images: int | None = Field(default=None, ge=1, lt=1 << 53, strict=True)


def _check_training(settings: dict[str, Any]) -> dict[str, Any]:
    TrainingBudget.model_validate(settings)
    return settings


class CellResult(BaseModel):
    """One cell with one seed. Exactly one of ``value`` with ``details`` and ``error`` says something."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    paper: str
    table: str
    cell: str
    profile: Profile
    seed: int = Field(ge=0, lt=1 << 31)
    measure: str
    unit: str
    value: Number | None = None
    published: Number | None = None
    images: int | None = Field(default=None, ge=1, lt=1 << 53)
    details: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()
    picture: str | None = None  # name of a file beside this one
    error: str | None = None  # one sentence, if it failed
    selection_split: str | None = None  # which images chose the checkpoint
    training: Annotated[dict[str, Any], AfterValidator(_check_training)] | None = None  # settings of the run
    fingerprint: str
    training_seconds: Seconds | None = None
    seconds: Seconds = 0.0  # of the measure
    environment: dict[str, Any]


def save_result(path: Path, result: CellResult) -> None:
    """Write a result, whole or not at all."""
    write_json(path, result.model_dump(mode="json"))


def read_result(path: Path) -> CellResult:
    """A result from its file, or one sentence that says what is wrong with it."""
    try:
        return CellResult.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise TorchcapsError(
            f"{path} is not the result of a cell: {where[:100]}: {' '.join(first['msg'].split())[:300]}"
        ) from error


def find_results(folder: Path, paper: str | None = None) -> Iterator[CellResult]:
    """All results in a folder ``<paper>/<table>/<cell>-<profile>-seed<k>.json``; one that lies elsewhere is refused."""
    for path in sorted(folder.glob(f"{paper or '*'}/*/*-seed*.json")):
        result = read_result(path)
        name = f"{result.cell}-{result.profile}-seed{result.seed}.json"
        if path != folder / result.paper / result.table / name:
            place = f"{result.paper}/{result.table}/{name}"
            raise TorchcapsError(f"{path} holds the result that belongs to {place}: move it there, or delete it")
        yield result


@dataclass(frozen=True)
class Evidence:
    """What is known about one cell in one profile.

    Args:
        results: one for each seed, without those that failed.
        failures: those that failed, of seeds that have no result.
        outdated: the results were made by earlier settings of the spec, and newer ones are not there.
    """

    cell: Cell
    results: tuple[CellResult, ...] = ()
    failures: tuple[CellResult, ...] = ()
    outdated: bool = False

    @property
    def values(self) -> dict[int, float]:
        """The numbers by seed; a picture or a curve has none."""
        return {result.seed: result.value for result in self.results if result.value is not None}

    @property
    def images(self) -> int | None:
        """Of how many images the value is a share, if it is one."""
        valued = [result for result in self.results if result.value is not None]
        shares = [each.images for each in valued if each.images and each.unit == "%" and 0 <= (each.value or 0) <= 100]
        return min(shares) if shares and len(shares) == len(valued) else None


@dataclass(frozen=True)
class PaperEvidence:
    """A paper in one profile: the evidence for each ``table/cell``."""

    spec: Spec
    profile: Profile
    folder: Path  # of this paper's results
    cells: dict[str, Evidence]
    notes: dict[str, str]  # ours on claims, by their names

    def has_results(self, paths: Iterable[str] | None = None) -> bool:
        """Whether anything was measured, of these cells or at all."""
        return any(self.cells[path].results or self.cells[path].failures for path in paths or self.cells)


def gather_results(spec: Spec, folder: Path) -> list[PaperEvidence]:
    """All results of a paper, for each profile; a result that fits no cell of the spec is refused."""
    found: dict[tuple[str, str], list[CellResult]] = {}
    for result in find_results(folder, spec.paper):
        path = f"{result.table}/{result.cell}"
        try:
            spec.cell(path)
        except TorchcapsError as error:
            raise TorchcapsError(
                f"{folder / spec.paper} holds a result that the paper's spec does not: {error}"
            ) from None
        found.setdefault((result.profile, path), []).append(result)
    notes = read_notes(spec, folder)
    return [
        PaperEvidence(spec, profile, folder / spec.paper, _cells(spec, profile, found), notes) for profile in PROFILES
    ]


def read_notes(spec: Spec, folder: Path) -> dict[str, str]:
    """What was written beside the results of a paper about its claims: ``notes.yaml``, a text for a claim's name."""
    source = folder / spec.paper / "notes.yaml"
    if not source.is_file():
        return {}
    notes = read_yaml(source) or {}
    if not isinstance(notes, dict) or not all(isinstance(text, str) and text.strip() for text in notes.values()):
        raise TorchcapsError(f"{source} must hold a text for each name of a claim, such as 'name: what we checked'")
    for name in notes:
        if name not in spec.claims:
            raise unknown_name(f"claim in {source}", str(name), spec.claims)
    return {name: " ".join(text.split()) for name, text in notes.items()}


def _cells(spec: Spec, profile: Profile, found: dict[tuple[str, str], list[CellResult]]) -> dict[str, Evidence]:
    asked = {f"{job.table}/{job.name}": job.fingerprint() for job in plan_jobs(spec, profile, seeds=1)}
    return {
        path: _evidence(cell, found.get((profile, path), []), asked.get(path))
        for table, each in spec.tables.items()
        for name, cell in each.cells.items()
        for path in [f"{table}/{name}"]
    }


def _evidence(cell: Cell, found: list[CellResult], fingerprint: str | None) -> Evidence:
    """Results of the settings as they are now; only where there are none, those of earlier settings."""
    current = [result for result in found if result.fingerprint == fingerprint]
    used = sorted(current or found, key=lambda result: result.seed)
    return Evidence(
        cell,
        tuple(result for result in used if result.error is None),
        tuple(result for result in used if result.error is not None),
        outdated=bool(found) and not current,
    )
