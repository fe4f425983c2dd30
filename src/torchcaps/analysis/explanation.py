"""What an explanation is made from, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from matplotlib.figure import Figure

from torchcaps.analysis.pictures import Shown
from torchcaps.data import Batch
from torchcaps.models import Model


@dataclass(frozen=True)
class Material:
    """What is explained: a model, images to show, images to measure on, and maybe a model with another decoder."""

    model: Model
    class_names: tuple[str, ...]
    shown: Shown
    sample: Batch
    other: Model | None = None


@dataclass(frozen=True)
class Explanation:
    """What was found in one sentence, what one sees in the figures, the data, and the figures by file name."""

    finding: str
    sees: str
    data: dict[str, Any]
    figures: dict[str, Figure] = field(default_factory=dict)
