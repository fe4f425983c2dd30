"""What was measured, kept with what it was measured on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchcaps.environment import describe_environment
from torchcaps.files import write_json


def write_result(folder: Path, name: str, values: dict[str, Any]) -> Path:
    """Write ``name``.json into the folder, with hardware and versions."""
    target = folder / f"{name}.json"
    write_json(target, values | {"environment": describe_environment()})
    return target
