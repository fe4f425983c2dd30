"""The measures of the papers, registered by name: functions that compute a value from runs."""

from torchcaps.reproduce.measures import accuracy, capsules, cost, robustness  # noqa: F401  (each registers its measures)
from torchcaps.reproduce.measures.registry import MeasureInput, Measurement, MeasureRecord, measures

__all__ = ["MeasureInput", "MeasureRecord", "Measurement", "measures"]
