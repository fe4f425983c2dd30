"""Train several models under one budget, and compare them in one table and one report."""

from torchcaps.compare.job import ComparisonResults, ComparisonRun, run_comparison
from torchcaps.compare.report import write_report

__all__ = ["ComparisonResults", "ComparisonRun", "run_comparison", "write_report"]
