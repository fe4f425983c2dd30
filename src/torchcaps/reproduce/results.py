"""Result files, one per cell and seed, and the collected results of a paper."""

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

# Beyond any real value, and small enough for sums and squares.
Number = Annotated[float, Field(ge=-1e15, le=1e15, allow_inf_nan=False, strict=True)]
Seconds = Annotated[Number, Field(ge=0)]


class TrainingBudget(BaseModel):
    """The settings of a training that a table's caption names."""

    data: str = ""
    epochs: int = Field(ge=1, lt=1 << 53, strict=True)
    train_images: int | None = Field(default=None, ge=1, lt=1 << 53, strict=True)


def _check_training(settings: dict[str, Any]) -> dict[str, Any]:
    TrainingBudget.model_validate(settings)
    return settings


class CellResult(BaseModel):
    """The result of one cell with one seed: either ``value`` and ``details``, or ``error``."""

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
    picture: str | None = None  # name of a file in the same folder
    error: str | None = None  # one sentence, if the cell failed
    selection_split: str | None = None  # the split that selected the checkpoint
    training: Annotated[dict[str, Any], AfterValidator(_check_training)] | None = None  # configuration of the run
    fingerprint: str
    training_seconds: Seconds | None = None
    training_core_seconds: Seconds | None = None  # CPU time; earlier versions did not record it
    seconds: Seconds = 0.0  # duration of the measurement
    environment: dict[str, Any]


def save_result(path: Path, result: CellResult) -> None:
    """Write a result atomically."""
    write_json(path, result.model_dump(mode="json"))


def read_result(path: Path) -> CellResult:
    """Read and check a result file."""
    try:
        return CellResult.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise TorchcapsError(
            f"{path} is not the result of a cell: {where[:100]}: {' '.join(first['msg'].split())[:300]}"
        ) from error


def find_results(folder: Path, paper: str | None = None) -> Iterator[CellResult]:
    """Yield all results ``<paper>/<table>/<cell>-<profile>-seed<k>.json``; one in the wrong place is refused."""
    for path in sorted(folder.glob(f"{paper or '*'}/*/*-seed*.json")):
        result = read_result(path)
        name = f"{result.cell}-{result.profile}-seed{result.seed}.json"
        if path != folder / result.paper / result.table / name:
            place = f"{result.paper}/{result.table}/{name}"
            raise TorchcapsError(f"{path} contains the result of {place}: move it there, or delete it")
        yield result


@dataclass(frozen=True)
class Evidence:
    """All results of one cell in one profile.

    Args:
        results: one for each seed, without failures.
        failures: results of seeds that failed.
        outdated: the results were measured with earlier settings of the spec, and there are no current ones.
    """

    cell: Cell
    results: tuple[CellResult, ...] = ()
    failures: tuple[CellResult, ...] = ()
    outdated: bool = False

    @property
    def values(self) -> dict[int, float]:
        """The values by seed; an image or a curve has none."""
        return {result.seed: result.value for result in self.results if result.value is not None}

    @property
    def images(self) -> int | None:
        """The number of images of which the value is a percentage, or None if it is not one."""
        valued = [result for result in self.results if result.value is not None]
        shares = [each.images for each in valued if each.images and each.unit == "%" and 0 <= (each.value or 0) <= 100]
        return min(shares) if shares and len(shares) == len(valued) else None


@dataclass(frozen=True)
class PaperEvidence:
    """All results of a paper in one profile, by ``table/cell``."""

    spec: Spec
    profile: Profile
    folder: Path  # with this paper's results
    cells: dict[str, Evidence]
    notes: dict[str, str]  # our notes on claims, by the name of the claim

    def all_results(self) -> list[CellResult]:
        """Return the results of all cells, without failures."""
        return [result for cell in self.cells.values() for result in cell.results]

    def has_results(self, paths: Iterable[str] | None = None) -> bool:
        """Whether there is any result, for these cells or for all."""
        return any(self.cells[path].results or self.cells[path].failures for path in paths or self.cells)


def gather_results(spec: Spec, folder: Path) -> list[PaperEvidence]:
    """Collect the results of a paper for each profile; a result of an unknown cell is refused."""
    found: dict[tuple[str, str], list[CellResult]] = {}
    for result in find_results(folder, spec.paper):
        path = f"{result.table}/{result.cell}"
        try:
            spec.cell(path)
        except TorchcapsError as error:
            raise TorchcapsError(
                f"{folder / spec.paper} contains a result that does not fit the spec: {error}"
            ) from None
        found.setdefault((result.profile, path), []).append(result)
    notes = read_notes(spec, folder)
    return [
        PaperEvidence(spec, profile, folder / spec.paper, _cells(spec, profile, found), notes) for profile in PROFILES
    ]


def read_notes(spec: Spec, folder: Path) -> dict[str, str]:
    """Read our notes on a paper's claims from ``notes.yaml`` next to its results: a text for each claim."""
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
    """Prefer results with the current settings; without any, use outdated ones."""
    current = [result for result in found if result.fingerprint == fingerprint]
    used = sorted(current or found, key=lambda result: result.seed)
    return Evidence(
        cell,
        tuple(result for result in used if result.error is None),
        tuple(result for result in used if result.error is not None),
        outdated=bool(found) and not current,
    )
