"""Answers as a CSV file: a line for each picture, a column for each class."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from torchcaps.files import write_text
from torchcaps.prediction.answers import Predictions


def write_csv(predictions: Predictions, target: Path) -> None:
    """Columns path, answer, probability, problem, then each class; of a broken file only path and problem are known."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["path", "answer", "probability", "problem", *predictions.class_names])
    for each in predictions.answers:
        [(answer, certainty)] = predictions.top(each, 1)
        figures = (f"{value:.6f}" for value in each.probabilities)
        lines.writerow([each.path, answer, f"{certainty:.6f}", "", *figures])
    for path, problem in predictions.broken.items():
        lines.writerow([path, "", "", problem, *("" for _ in predictions.class_names)])
    write_text(target, text.getvalue())
