"""How the numbers of the papers are measured on trained runs: one function each, by name."""

from torchcaps.reproduce.measures import accuracy, attacked, capsules, timed  # noqa: F401  (each registers its measures)
from torchcaps.reproduce.measures.registry import MeasureInput, Measurement, MeasureRecord, measures

__all__ = ["MeasureInput", "MeasureRecord", "Measurement", "measures"]
