"""The measures of the papers, registered by name: functions that compute a value from runs."""

# Each of these modules registers its measures.
from torchcaps.reproduce.measures import accuracy, capsules, cost, dynamics, robustness  # noqa: F401
from torchcaps.reproduce.measures.registry import MeasureInput, Measurement, MeasureRecord, measures

__all__ = ["MeasureInput", "MeasureRecord", "Measurement", "measures"]
