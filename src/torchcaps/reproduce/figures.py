"""Pictures of a paper's figures from result files: curves, histograms, values with their intervals, saved sheets."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure

from torchcaps.analysis.style import Theme
from torchcaps.compare.figures import Picture, draw
from torchcaps.errors import TorchcapsError
from torchcaps.reproduce.captions import conditions, record_of
from torchcaps.reproduce.charts import (
    axes_grid,
    curve_of,
    histogram_of,
    name_axes,
    paint_curve,
    paint_histogram,
    paint_values,
)
from torchcaps.reproduce.evidence import Evidence, PaperEvidence
from torchcaps.reproduce.results import CellResult

KINDS = {".png": "png", ".svg": "svg+xml"}
MOST_PICTURE = 64 << 20  # bytes
Group = list[Evidence]
Painter = Callable[[Any, int, str, Evidence], None]
CHARTS: tuple[tuple[str, Callable[[CellResult], bool], Painter], ...] = (
    ("Curves", lambda result: len(curve_of(result)) > 1, paint_curve),
    ("Histograms", lambda result: histogram_of(result) is not None, paint_histogram),
)


def table_pictures(paper: PaperEvidence, name: str) -> list[Picture]:
    """Everything of a table or figure that is looked at and not read."""
    table = paper.spec.tables[name]
    cells = [paper.cells[f"{name}/{cell}"] for cell in table.cells]
    pictures = []
    for title, is_there, paint in CHARTS:
        found = [each for each in cells if each.results and all(is_there(result) for result in each.results)]
        if found:
            pictures.append(_chart(title, paper, found, paint))
    pictures += [_saved(paper, name, each) for each in cells if each.results and each.results[0].picture]
    valued = [each for each in cells if each.values]
    if table.kind == "figure" and valued and not pictures:
        pictures.append(_values(paper, valued))
    return pictures


def _chart(title: str, paper: PaperEvidence, cells: Group, paint: Painter) -> Picture:
    """Cells that differ in their network alone share an axes."""
    groups: dict[str, Group] = {}
    for each in cells:
        data = (each.results[0].training or {}).get("data")
        groups.setdefault(f"{each.cell.measure} {sorted(each.cell.settings.items())} {data}", []).append(each)

    def drawn(theme: Theme) -> Figure:
        figure, grid = axes_grid(len(groups))
        for axes, group in zip(grid, groups.values(), strict=True):
            common, labels = _names(group)
            for number, (label, each) in enumerate(zip(labels, group, strict=True)):
                paint(axes, number, label, each)
            name_axes(axes, group[0].cell.measure or "", common)
        return figure

    several = any(len(each.results) > 1 for each in cells)
    words = f"{conditions(paper.profile, cells)}{' Lines are means over seeds, shades their range.' if several else ''}"
    warned = dict.fromkeys(text for each in cells for result in each.results for text in result.warnings)
    return draw(title, words, drawn, kind="svg", warning=" ".join(warned))


def _values(paper: PaperEvidence, cells: Group) -> Picture:
    """The numbers of a figure that has no curves."""

    def drawn(theme: Theme) -> Figure:
        figure, (axes,) = axes_grid(1)
        paint_values(axes, cells)
        record = record_of(cells[0].cell)
        axes.set_ylabel(f"{record.name}, {record.unit}" if record else "")
        return figure

    return draw("Values", f"{conditions(paper.profile, cells)} Bars are 95 % intervals over seeds.", drawn, kind="svg")


def _saved(paper: PaperEvidence, name: str, each: Evidence) -> Picture:
    """A picture that the measure made and saved beside its result."""
    source = paper.folder / name / str(each.results[0].picture)
    if source.parent != paper.folder / name or source.suffix not in KINDS:
        raise TorchcapsError(
            f"a result in {paper.folder / name} names a picture that is not one beside it: {source.name}"
        )
    if source.is_symlink() or (source.exists() and not source.is_file()):
        raise TorchcapsError(f"{source} is not a file of its own, and a result beside it names it: replace it")
    try:
        if source.stat().st_size > MOST_PICTURE:
            raise TorchcapsError(f"{source} has more than {MOST_PICTURE:,} bytes, more than any picture of a result")
        data = base64.b64encode(source.read_bytes()).decode()
    except OSError as error:
        raise TorchcapsError(f"{source} cannot be read, and a result beside it names it: {error.strerror}") from error
    address = f"data:image/{KINDS[source.suffix]};base64,{data}"
    caption = f"{conditions(paper.profile, [each])} Seed {each.results[0].seed}."
    return Picture(
        f"{each.cell.row}, {each.cell.column}", caption, address, address, " ".join(each.results[0].warnings)
    )


def _names(group: Group) -> tuple[str, list[str]]:
    """What the cells of an axes have in common, and what tells them apart."""
    columns = list(dict.fromkeys(each.cell.column for each in group))
    rows = list(dict.fromkeys(each.cell.row for each in group))
    if len(columns) == 1:
        return columns[0], [each.cell.row for each in group]
    if len(rows) == 1:
        return rows[0], [each.cell.column for each in group]
    return "", [f"{each.cell.row}, {each.cell.column}" for each in group]
