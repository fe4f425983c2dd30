"""A result of a cell, as a file: whole, checked when it is read, and enough to say where the number comes from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from torchcaps.errors import TorchcapsError
from torchcaps.files import read_json, write_json
from torchcaps.reproduce.spec import Profile

# Far beyond what any measure gives, and small enough for sums and squares of it.
Number = Annotated[float, Field(ge=-1e15, le=1e15, allow_inf_nan=False, strict=True)]
Seconds = Annotated[Number, Field(ge=0)]


class Budget(BaseModel):
    """The settings of a training that stand under a table."""

    data: str = ""
    epochs: int = Field(ge=1, lt=1 << 53, strict=True)
    train_images: int | None = Field(default=None, ge=1, lt=1 << 53, strict=True)


def _check_training(settings: dict[str, Any]) -> dict[str, Any]:
    Budget.model_validate(settings)
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


def write_result(path: Path, result: CellResult) -> None:
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
