"""Train several models under one budget, and compare them in one table and one report."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchcaps.compare.job import ComparisonResults, ComparisonRun, run_comparison
    from torchcaps.compare.report import write_report

__all__ = ["ComparisonResults", "ComparisonRun", "run_comparison", "write_report"]

# Imported when first used, so that training does not load attacks and matplotlib.
_MODULES = {
    "ComparisonResults": "torchcaps.compare.job",
    "ComparisonRun": "torchcaps.compare.job",
    "run_comparison": "torchcaps.compare.job",
    "write_report": "torchcaps.compare.report",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
