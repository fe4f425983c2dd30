"""Metrics of a run: rows of a CSV file, also sent to TensorBoard if it is installed."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from torchcaps.errors import TorchcapsError
from torchcaps.files import cannot_write, read_text, write_text
from torchcaps.train.checkpoint import TrainingProgress

if TYPE_CHECKING:
    from torchcaps.train.tensorboard import TensorBoardWriter


@dataclass(frozen=True)
class MetricRow:
    """One row: means since the last row (split "train"), or over the validation images."""

    step: int
    epoch: float
    split: str
    loss: float | None
    accuracy: float
    learning_rate: float
    images_per_second: float
    seconds: float


HEADER = [field.name for field in fields(MetricRow)]


def read_metrics(path: Path) -> list[MetricRow]:
    """Read all complete rows of a metrics file; a last one that was truncated by a kill is skipped."""
    if not path.is_file():
        return []
    rows = list[MetricRow]()
    reader = csv.DictReader(io.StringIO(read_text(path, damaged="replace")))
    while True:
        try:
            values = next(reader)
            numbers = {key: float(values[key]) for key in HEADER if key not in ("split", "loss", "step")}
            loss = float(values["loss"]) if values["loss"] else None
            row = MetricRow(step=int(values["step"]), split=values["split"], loss=loss, **numbers)
        except StopIteration:
            return rows
        except (KeyError, TypeError, ValueError, csv.Error):
            continue
        _check_row(path, row)
        rows.append(row)


def _check_row(path: Path, row: MetricRow) -> None:
    """Raise an error for a complete row that no training writes."""
    amounts = (row.epoch, row.accuracy, row.learning_rate, row.images_per_second, row.seconds)
    possible = 0 <= row.step < 1 << 63 and min(amounts) >= 0 and max(amounts) < math.inf and row.accuracy <= 1
    if not possible or any(map(math.isnan, amounts)) or not math.isfinite(row.loss or 0):
        raise TorchcapsError(
            f"{path} has a row with values that are not finite or out of range: step {str(row.step)[:20]}"
        )


def read_validation_metrics(path: Path) -> list[MetricRow]:
    """Read the rows of the validation images; raise an error if there is none."""
    found = [row for row in read_metrics(path) if row.split == "validation"]
    if not found:
        raise TorchcapsError(f"{path} is missing or has no validation row: resume the run to its end")
    return found


def make_metric_row(
    progress: TrainingProgress, per_epoch: int, split: str, loss: float | None, accuracy: float, rate: float
) -> MetricRow:
    """Make a row of metrics from the counters of a run."""
    speed = progress.images / progress.seconds
    return MetricRow(progress.step, progress.step / per_epoch, split, loss, accuracy, rate, speed, progress.seconds)


class MetricsWriter:
    """Appends rows to a CSV file and sends them to TensorBoard.

    When a run is resumed, rows that are newer than its last checkpoint are removed.
    """

    def __init__(self, path: Path, progress: TrainingProgress, tensorboard: TensorBoardWriter | None) -> None:
        self.path, self._tensorboard = path, tensorboard
        reached = {"train": progress.step, "validation": progress.validated_at}
        kept = [row for row in read_metrics(path) if row.step <= reached.get(row.split, -1)]
        write_text(path, ",".join(HEADER) + "\n" + "".join(map(_format_row, kept)))

    def write(self, row: MetricRow) -> None:
        """Append a row."""
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_format_row(row))
        except OSError as error:
            raise cannot_write(self.path, error) from error
        if self._tensorboard is not None:
            for name in ("loss", "accuracy", "learning_rate", "images_per_second"):
                value = getattr(row, name)
                if value is not None:
                    self._tensorboard.add_scalar(f"{row.split}/{name}", value, row.step)

    def close(self) -> None:
        """Close the event file of TensorBoard."""
        if self._tensorboard is not None:
            self._tensorboard.close()


def _format_row(row: MetricRow) -> str:
    values = ["" if getattr(row, key) is None else str(getattr(row, key)) for key in HEADER]
    if any("," in value for value in values):
        raise TorchcapsError(f"a value contains a comma: {values}")
    return ",".join(values) + "\n"
