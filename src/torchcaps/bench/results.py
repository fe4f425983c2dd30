"""What was measured, kept with what it was measured on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torchcaps.environment import describe_environment
from torchcaps.files import write_json


def write_result(folder: Path, name: str, values: dict[str, Any]) -> Path:
    """Write ``name``.json into the folder, with hardware and versions."""
    target = folder / f"{name}.json"
    write_json(target, values | {"environment": describe_environment()})
    return target


def write_rows(folder: Path, name: str, rows: Iterable[dict[str, Any]]) -> tuple[Path, list[dict[str, Any]]]:
    """Write the file anew with every row that is measured: what is cut off keeps what it had."""
    so_far: list[dict[str, Any]] = []
    target = folder / f"{name}.json"
    for row in rows:
        so_far.append(row)
        target = write_result(folder, name, {"rows": so_far})
    return target, so_far
