"""The JSON files of a run directory, validated when they are read: they may come from an untrusted source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from torchcaps.errors import TorchcapsError
from torchcaps.files import read_json

Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Amount = Annotated[float, Field(ge=0, le=1e12)]


class JsonRecord(BaseModel):
    """A JSON file of a run directory, or a part of one. Known fields are validated; others are ignored."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, protected_namespaces=())


class EnvironmentRecord(JsonRecord):
    """The part of environment.json, written by ``describe_environment``, that is read again."""

    command: str
    commit: str | None
    versions: dict[str, str | None]
    processor: str
    cores: Count | None
    threads: Count


class RunResult(JsonRecord):
    """result.json, written by ``evaluate_run``. Earlier versions wrote fewer fields, so each has a default."""

    model: str = ""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    parameters: Count = 0
    selection_split: str = ""
    validation_accuracy: Share = 0
    stop_at_accuracy: Share | None = None
    reached: bool | None = None
    test_accuracy: Share = 0
    test_images: Count = 0
    training_seconds: Amount = 0
    training_core_seconds: Amount | None = None
    images_per_second: Annotated[float, Field(gt=0, le=1e12)] = 1
    confusion: list[list[Count]] | None = Field(default=None, min_length=2)
    environment: EnvironmentRecord | None = None

    @model_validator(mode="after")
    def check_confusion(self) -> Self:
        given = self.model_fields_set
        if any(name in given and getattr(self, name) is None for name in ("confusion", "environment")):
            raise ValueError("confusion and environment must not be null")
        if any(len(row) != len(self.confusion or []) for row in self.confusion or []):
            raise ValueError("the confusion matrix must be square")
        return self


R = TypeVar("R", bound=JsonRecord)


def read_record(kind: type[R], path: Path) -> dict[str, Any]:
    """Read a JSON file, perhaps an untrusted one, and validate it; the error says in one sentence what is wrong."""
    values = read_json(path)
    try:
        kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])[:100] or "the file"
        raise TorchcapsError(
            f"{path} cannot be used: {where}: {first['msg'][:200]}. Remove it to continue without it"
        ) from error
    return values  # type: ignore[no-any-return]
