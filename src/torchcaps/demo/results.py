"""The reproduction in a folder, as the page shows it: each cell beside what its paper printed."""

from __future__ import annotations

from pathlib import Path
from statistics import mean

from torchcaps.demo.schemas import Message
from torchcaps.reproduce.results import CellResult, find_results


class ResultRow(Message):
    """One cell: the mean over its seeds, and the paper's value."""

    table: str
    cell: str
    profile: str
    unit: str
    value: float
    seeds: int
    published: float | None
    warnings: list[str]


class PaperResults(Message):
    """All cells of one paper that were measured."""

    paper: str
    rows: list[ResultRow]


def read_results(folder: Path) -> list[PaperResults]:
    """What was measured, paper by paper; nothing where the folder has no results. Failed cells are left out."""
    cells: dict[str, dict[tuple[str, str, str], list[CellResult]]] = {}
    for result in find_results(folder):
        if result.value is not None:
            own = cells.setdefault(result.paper, {})
            own.setdefault((result.table, result.cell, result.profile), []).append(result)
    return [PaperResults(paper=paper, rows=[_row(results) for results in own.values()]) for paper, own in cells.items()]


def _row(results: list[CellResult]) -> ResultRow:
    first = results[0]
    return ResultRow(
        table=first.table,
        cell=first.cell,
        profile=first.profile,
        unit=first.unit,
        value=mean(result.value for result in results if result.value is not None),
        seeds=len(results),
        published=first.published,
        warnings=sorted({warning for result in results for warning in result.warnings}),
    )
