"""What stands under a table or figure: no number without its conditions, which are profile, seeds, budget and how."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from torchcaps.reproduce.durations import show_duration
from torchcaps.reproduce.evidence import Evidence
from torchcaps.reproduce.measures import MeasureRecord, measures
from torchcaps.reproduce.results import CellResult
from torchcaps.reproduce.spec import Cell, Profile


def record_of(cell: Cell) -> MeasureRecord | None:
    """The measure of a cell, if it has one that is known here."""
    return measures.get(cell.measure) if cell.measure in measures else None  # type: ignore[arg-type]


def table_label(name: str) -> str:
    """What a paper calls a table of this name.

    >>> table_label("table1"), table_label("fig3"), table_label("black-box"), table_label("table1-longer")
    ('Table 1', 'Figure 3', 'Black box', 'Table 1, longer')
    """
    numbered = re.fullmatch(r"(table|fig)(\d+)(?:-(.+))?", name)
    if numbered is None:
        return name.replace("-", " ").capitalize()
    return f"{'Table' if numbered[1] == 'table' else 'Figure'} {numbered[2]}{f', {numbered[3]}' if numbered[3] else ''}"


def conditions(profile: Profile, cells: Iterable[Evidence]) -> str:
    """One sentence or two: the profile, how many seeds, and what they cost."""
    found = [cell for cell in cells if cell.results]
    if not found:
        return "Not measured yet."
    seeds = [len(cell.results) for cell in found]
    results = [result for cell in found for result in cell.results]
    parts = [f"Profile {profile}", f"{_range(seeds)} seed{'s' if max(seeds) > 1 else ''}", *_budget(results)]
    return f"{', '.join(parts)}.{_selection(results)}"


def how_measured(cells: Iterable[Evidence]) -> list[str]:
    """A sentence for each measure: its name, its unit and how the value is computed."""
    found = filter(None, (record_of(each.cell) for each in cells))
    return [f"{record.name} ({record.unit}): {record.how}." for record in dict.fromkeys(found)]


def _budget(results: Sequence[CellResult]) -> list[str]:
    """Images and passes over them, and the time of a training."""
    trainings = [result.training for result in results if result.training]
    parts = []
    if trainings:
        images = [each.get("train_images") for each in trainings]
        counted = [count for count in images if count]
        words = f"{_range(counted)} training images" if len(counted) == len(images) else "all training images"
        if 0 < len(counted) < len(images):
            words = f"from {min(counted):,} up to all training images"
        early = any(each.get("stop_at_accuracy") or each.get("steps") for each in trainings)
        epochs = [each["epochs"] for each in trainings]
        passes = f"{_range(epochs)} epoch{'s' if max(epochs) > 1 else ''}{' at most' if early else ''}"
        parts.append(f"{words}, {passes}")
    seconds = [result.training_seconds for result in results if result.training_seconds]
    if seconds:
        parts.append(f"{_range([round(each) for each in seconds], show_duration)} of training a run")
    return parts


def _selection(results: Sequence[CellResult]) -> str:
    splits = sorted({result.selection_split for result in results if result.selection_split})
    return f" The checkpoint was chosen on {' or '.join(splits)} images." if splits else ""


def _range(values: Sequence[int], show: Callable[[float], str] = "{:,}".format) -> str:
    low, high = show(min(values)), show(max(values))
    return low if low == high else f"{low} to {high}"
