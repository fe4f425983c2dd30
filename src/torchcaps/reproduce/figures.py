"""Pictures of a paper's figures from result files: curves, histograms, values with their intervals, saved sheets."""

from __future__ import annotations

import base64
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from torchcaps.analysis.style import COLOURS, Theme
from torchcaps.compare.figures import Picture, draw
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate.curves import MARKERS
from torchcaps.reproduce.captions import conditions, record_of
from torchcaps.reproduce.evidence import Evidence, PaperEvidence
from torchcaps.reproduce.intervals import mean_interval

# What is drawn to the right and upward, by measure; errors upward have a logarithmic scale.
AXES = {
    "attack-accuracy": ("epsilon, pixels in [0, 1]", "accuracy, %"),
    "targeted-success": ("epsilon, pixels in [0, 1]", "success of the attack, %"),
    "universal-accuracy": ("iteration of the attack", "accuracy, %"),
    "learning-curve": ("step", "error, %"),
    "alignment-cosines": ("cosine", "images"),
}
Group = list[Evidence]
Painter = Callable[[Any, int, str, Evidence], None]


def table_pictures(paper: PaperEvidence, name: str) -> list[Picture]:
    """Everything of a table or figure that is looked at and not read."""
    table = paper.spec.tables[name]
    cells = [paper.cells[f"{name}/{cell}"] for cell in table.cells]
    pictures = []
    for key, title, paint in (("curve", "Curves", _curve), ("histogram", "Histograms", _histogram)):
        found = [each for each in cells if each.results and all(key in result.details for result in each.results)]
        if found:
            pictures.append(_chart(title, paper, found, paint))
    pictures += [_saved(paper, name, each) for each in cells if each.results and each.results[0].picture]
    valued = [each for each in cells if each.values]
    if table.kind == "figure" and valued and not pictures:
        pictures.append(_values("Values", paper, valued))
    return pictures


def _chart(title: str, paper: PaperEvidence, cells: Group, paint: Painter) -> Picture:
    """Cells that differ in their network alone share an axes."""
    groups: dict[str, Group] = {}
    for each in cells:
        data = (each.results[0].training or {}).get("data")
        groups.setdefault(f"{each.cell.measure} {sorted(each.cell.settings.items())} {data}", []).append(each)

    def drawn(theme: Theme) -> Figure:
        figure, grid = _grid(len(groups))
        for axes, group in zip(grid, groups.values(), strict=True):
            common, labels = _names(group)
            for number, (label, each) in enumerate(zip(labels, group, strict=True)):
                paint(axes, number, label, each)
            across, upward = AXES.get(group[0].cell.measure or "", ("", ""))
            axes.set(xlabel=across, ylabel=upward)
            axes.set_title(common, fontsize=10)
            if upward.startswith("error"):
                axes.set_yscale("log")
                for set_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
                    set_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.5)))
            axes.legend(fontsize=8)
        return figure

    several = any(len(each.results) > 1 for each in cells)
    words = f"{conditions(paper.profile, cells)}{' Lines are means over seeds, shades their range.' if several else ''}"
    warned = dict.fromkeys(text for each in cells for result in each.results for text in result.warnings)
    return draw(title, words, drawn, kind="svg", warning=" ".join(warned))


def _curve(axes: Any, number: int, label: str, each: Evidence) -> None:
    """The mean over seeds; what a sanity check warns of is dashed and hollow."""
    curves = [result.details["curve"] for result in each.results]
    places = [place for place, _ in curves[0]]
    suspect = any(result.warnings for result in each.results)
    style: dict[str, Any] = {"linestyle": "--", "markerfacecolor": "none"} if suspect else {}
    style |= {"color": COLOURS[number % len(COLOURS)]}
    label += " (see the warning)" if suspect else ""
    marker = MARKERS[number % len(MARKERS)] if len(places) <= 20 else ""
    if any([place for place, _ in curve] != places for curve in curves):  # nothing to average: every seed a line
        for seed, curve in enumerate(curves):
            axes.plot(*zip(*curve, strict=True), label=None if seed else label, **style)
        return
    values = [[value for _, value in points] for points in zip(*curves, strict=True)]
    means = [statistics.fmean(each) for each in values]
    axes.plot(places, means, marker=marker, markersize=4, label=label, **style)
    axes.fill_between(
        places, list(map(min, values)), list(map(max, values)), color=style["color"], alpha=0.2, linewidth=0
    )


def _histogram(axes: Any, number: int, label: str, each: Evidence) -> None:
    """Counts in bins, of the first seed."""
    found = each.results[0].details["histogram"]
    axes.stairs(
        found["counts"], found["edges"], fill=True, alpha=0.6, color=COLOURS[number % len(COLOURS)], label=label
    )


def _values(title: str, paper: PaperEvidence, cells: Group) -> Picture:
    """One value a cell with its interval over seeds, columns across and rows as lines."""
    columns = list(dict.fromkeys(each.cell.column for each in cells))
    rows = list(dict.fromkeys(each.cell.row for each in cells))

    def drawn(theme: Theme) -> Figure:
        figure, (axes,) = _grid(1)
        for number, row in enumerate(rows):
            found = [each for each in cells if each.cell.row == row]
            lists = [list(each.values.values()) for each in found]
            axes.errorbar(
                [columns.index(each.cell.column) + 0.06 * (number - (len(rows) - 1) / 2) for each in found],
                [statistics.fmean(values) for values in lists],
                [mean_interval(values).half if len(values) > 1 else 0 for values in lists],
                color=COLOURS[number % len(COLOURS)],
                marker=MARKERS[number % len(MARKERS)],
                capsize=3,
                label=row,
            )
        record = record_of(cells[0].cell)
        axes.set_xticks(range(len(columns)), columns)
        axes.set(ylabel=f"{record.name}, {record.unit}" if record else "", xlim=(-0.4, len(columns) - 0.6))
        axes.legend(fontsize=8)
        return figure

    return draw(title, f"{conditions(paper.profile, cells)} Bars are 95 % intervals over seeds.", drawn, kind="svg")


def _saved(paper: PaperEvidence, name: str, each: Evidence) -> Picture:
    """A picture that the measure made and saved beside its result."""
    source = paper.folder / name / str(each.results[0].picture)
    try:
        data = base64.b64encode(source.read_bytes()).decode()
    except OSError as error:
        raise TorchcapsError(f"{source} cannot be read, and a result beside it names it: {error.strerror}") from error
    address = f"data:image/{'svg+xml' if source.suffix == '.svg' else 'png'};base64,{data}"
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


def _grid(count: int) -> tuple[Figure, Sequence[Any]]:
    """Axes two in a row: small enough for a page, large enough for a phone."""
    columns = min(2, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(4.5 * columns if count > 1 else 5.5, 3 * rows))
    figure.set_layout_engine("constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid[:count]:
        axes.grid(alpha=0.6)
    for axes in grid[count:]:
        axes.set_axis_off()
    return figure, grid[:count]
