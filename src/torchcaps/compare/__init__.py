"""Train several models under one budget, and compare them in one table and one report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchcaps.runtime import lazy_exports

if TYPE_CHECKING:
    from torchcaps.compare.job import ComparisonResults, ComparisonRun, run_comparison
    from torchcaps.compare.report import write_report

__all__ = ["ComparisonResults", "ComparisonRun", "run_comparison", "write_report"]

# Imported when first used, so that training loads neither attacks nor matplotlib.
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "job": ("ComparisonResults", "ComparisonRun", "run_comparison"),
        "report": ("write_report",),
    },
)
