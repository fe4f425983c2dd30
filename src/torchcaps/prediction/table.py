"""Answers as a CSV file: a line for each picture, a column for each class."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

from torchcaps.files import printable, write_text
from torchcaps.prediction.answers import Predictions

NUMBER = re.compile(r"-\d+(\.\d*)?([eE][+-]?\d+)?")


def write_csv(predictions: Predictions, target: Path) -> None:
    """Columns path, answer, probability, problem, then each class; of a broken file only path and problem are known."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["path", "answer", "probability", "problem", *map(cell, predictions.class_names)])
    for each in predictions.answers:
        [(answer, certainty)] = predictions.top(each, 1)
        figures = (f"{value:.6f}" for value in each.probabilities)
        lines.writerow([cell(each.path), cell(answer), f"{certainty:.6f}", "", *figures])
    for path, problem in predictions.broken.items():
        lines.writerow([cell(path), "", "", cell(problem), *("" for _ in predictions.class_names)])
    write_text(target, text.getvalue())


def cell(value: object) -> str:
    """A text that no spreadsheet takes for a formula: it gets an apostrophe, unless it is a number.

    >>> cell("=1+1"), cell("-3.5"), cell("cat")
    ("'=1+1", '-3.5', 'cat')
    """
    text = printable(str(value))
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) and not NUMBER.fullmatch(text) else text
