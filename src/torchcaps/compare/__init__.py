"""The main job: several models under one budget, one table, one report."""

from torchcaps.compare.job import Comparison, Entry, run_comparison
from torchcaps.compare.report import write_report

__all__ = ["Comparison", "Entry", "run_comparison", "write_report"]
