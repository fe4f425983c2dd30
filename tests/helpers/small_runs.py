"""Runs that are fast to train in tests, and measures of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tests.helpers.tiny_model  # noqa: F401  (registers the model)
from torchcaps.reproduce.measures import MeasureInput, Measurement, measures
from torchcaps.train import RunFolder, fit_run, new_run, resolve


def small_run(path: Path, **settings: Any) -> RunFolder:
    """A trained run."""
    quick = {"model": "tiny", "data": "glyphs", "train_images": 200, "steps": 12, "batch_size": 32, "device": "cpu"}
    run = new_run(resolve(**quick | settings), path)
    fit_run(run)
    return run


def measured(
    name: str, run: RunFolder | None, others: dict[str, RunFolder] | None = None, **settings: Any
) -> Measurement:
    """A measure of a run."""
    shared = Path("shared") if run is None else run.path.parent / "shared"
    configs = {role: each.config() for role, each in {"": run, **(others or {})}.items() if each}
    return measures.get(name).function(MeasureInput(run, others or {}, 0, settings, shared, configs))
