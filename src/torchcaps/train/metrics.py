"""Lines of metrics: a CSV file always, TensorBoard where it is installed."""

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

if TYPE_CHECKING:  # which knows a line of metrics
    from torchcaps.train.tensorboard import TensorBoardWriter


@dataclass(frozen=True)
class MetricRow:
    """One line: means since the last one (split "train"), or over the validation images."""

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
    """All complete lines of a metrics file; a last one that a kill cut short is left out."""
    if not path.is_file():
        return []
    lines = list[MetricRow]()
    rows = csv.DictReader(io.StringIO(read_text(path, damaged="replace")))
    while True:
        try:
            row = next(rows)
            numbers = {key: float(row[key]) for key in HEADER if key not in ("split", "loss", "step")}
            loss = float(row["loss"]) if row["loss"] else None
            line = MetricRow(step=int(row["step"]), split=row["split"], loss=loss, **numbers)
        except StopIteration:
            return lines
        except (KeyError, TypeError, ValueError, csv.Error):
            continue
        _check_line(path, line)
        lines.append(line)


def _check_line(path: Path, line: MetricRow) -> None:
    """Refuse a line that is complete, but that no training writes."""
    amounts = (line.epoch, line.accuracy, line.learning_rate, line.images_per_second, line.seconds)
    possible = 0 <= line.step < 1 << 63 and min(amounts) >= 0 and max(amounts) < math.inf and line.accuracy <= 1
    if not possible or any(map(math.isnan, amounts)) or not math.isfinite(line.loss or 0):
        raise TorchcapsError(
            f"{path} has a line whose numbers are not finite or out of range: step {str(line.step)[:20]}"
        )


def read_validation_metrics(path: Path) -> list[MetricRow]:
    """The lines about the validation images, at least one."""
    found = [line for line in read_metrics(path) if line.split == "validation"]
    if not found:
        raise TorchcapsError(f"{path} is missing or has no line about validation images: resume the run to its end")
    return found


def make_metric_row(
    progress: TrainingProgress, per_epoch: int, split: str, loss: float | None, accuracy: float, rate: float
) -> MetricRow:
    """A line of metrics for where the run stands."""
    speed = progress.images / progress.seconds
    return MetricRow(progress.step, progress.step / per_epoch, split, loss, accuracy, rate, speed, progress.seconds)


class MetricsWriter:
    """Writes lines as they come, into a file and on a TensorBoard where there is one.

    Opening it again after a kill drops what lies beyond the last checkpoint.
    """

    def __init__(self, path: Path, progress: TrainingProgress, board: TensorBoardWriter | None) -> None:
        self.path, self._board = path, board
        reached = {"train": progress.step, "validation": progress.validated_at}
        kept = [line for line in read_metrics(path) if line.step <= reached.get(line.split, -1)]
        write_text(path, ",".join(HEADER) + "\n" + "".join(map(_as_row, kept)))

    def write(self, line: MetricRow) -> None:
        """Add a line."""
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_as_row(line))
        except OSError as error:
            raise cannot_write(self.path, error) from error
        if self._board is not None:
            for name in ("loss", "accuracy", "learning_rate", "images_per_second"):
                value = getattr(line, name)
                if value is not None:
                    self._board.add_scalar(f"{line.split}/{name}", value, line.step)

    def close(self) -> None:
        """Close TensorBoard's file."""
        if self._board is not None:
            self._board.close()


def _as_row(line: MetricRow) -> str:
    values = ["" if getattr(line, key) is None else str(getattr(line, key)) for key in HEADER]
    if any("," in value for value in values):
        raise TorchcapsError(f"a metrics value holds a comma: {values}")
    return ",".join(values) + "\n"
