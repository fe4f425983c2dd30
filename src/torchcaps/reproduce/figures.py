"""Figures of a paper from result files: curves, histograms, and values with their intervals."""

from __future__ import annotations

import base64
import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Self, TypeVar

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from pydantic import BaseModel, TypeAdapter, ValidationError, model_validator

from torchcaps.analysis.intervals import mean_interval
from torchcaps.analysis.style import COLORS, Theme, figure_text
from torchcaps.compare.figures import render_figure
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate.figures import MARKERS
from torchcaps.html import ThemedFigure
from torchcaps.reproduce.claims_text import describe_conditions, measure_record
from torchcaps.reproduce.results import CellResult, Evidence, Number, PaperEvidence

# Axis labels by measure.
AXES = {
    "attack-accuracy": ("epsilon, pixels in [0, 1]", "accuracy, %"),
    "targeted-success": ("epsilon, pixels in [0, 1]", "success of the attack, %"),
    "universal-accuracy": ("iteration of the attack", "accuracy, %"),
    "learning-curve": ("step", "error, %"),
    "viewpoint-error": ("angle, degrees", "error, %"),
    "familiar-error": ("angle, degrees", "error, %"),
    "alignment-cosines": ("cosine", "images"),
}
T = TypeVar("T")
FALLING = "learning-curve"  # may need a logarithmic scale


POINTS = TypeAdapter(list[tuple[Number, Number]])


class Histogram(BaseModel):
    """Counts and bin edges."""

    edges: list[Number]
    counts: list[Number]

    @model_validator(mode="after")
    def check_lengths(self) -> Self:
        if len(self.edges) != len(self.counts) + 1:
            raise ValueError("there must be one edge more than counts")
        return self


def curve_of(result: CellResult) -> list[tuple[float, float]]:
    """Return the curve of a result; the curve of an attack starts with the clean accuracy at 0."""
    points = checked(POINTS, result, result.details.get("curve") or [])
    points = points or _around(checked(POINTS, result, result.details.get("by_degree") or []))
    clean = result.details.get("clean_accuracy")
    if result.measure == "attack-accuracy" and clean is not None and len(points) > 1:
        points = checked(POINTS, result, [[0.0, clean], *points])
    return points


def _around(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Rotate angles so that the curve does not cross their widest gap.

    >>> _around([(0, 5.0), (20, 6.0), (340, 4.0)])
    [(-20, 4.0), (0, 5.0), (20, 6.0)]
    """
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(points)]
    if not gaps or max(gaps) <= 360 + points[0][0] - points[-1][0]:
        return points
    first = gaps.index(max(gaps)) + 1
    return [(angle - 360, value) for angle, value in points[first:]] + points[:first]


def histogram_of(result: CellResult) -> Histogram | None:
    """Return the histogram of a result, or None."""
    found = result.details.get("histogram")
    return None if found is None else checked(TypeAdapter(Histogram), result, found)


def checked(kind: TypeAdapter[T], result: CellResult, value: Any) -> T:
    """Validate a part of a result's details before it is drawn."""
    try:
        return kind.validate_python(value)
    except ValidationError as error:
        name = f"{result.paper} {result.table}/{result.cell} with seed {result.seed}"
        raise TorchcapsError(f"the details of {name} cannot be drawn: {error.errors()[0]['msg']}") from error


def paint_curve(axes: Any, number: int, label: str, each: Evidence) -> None:
    """Plot the mean over seeds; curves with a sanity warning are dashed with hollow markers."""
    curves = [curve_of(result) for result in each.results]
    places = [place for place, _ in curves[0]]
    suspect = any(result.warnings for result in each.results)
    style: dict[str, Any] = {"linestyle": "--", "markerfacecolor": "none"} if suspect else {}
    style |= {"color": COLORS[number % len(COLORS)]}
    label = figure_text(label) + (" (see the warning)" if suspect else "")
    marker = MARKERS[number % len(MARKERS)] if len(places) <= 20 else ""
    if any([place for place, _ in curve] != places for curve in curves):  # no common x values: one line per seed
        for seed, curve in enumerate(curves):
            axes.plot(*zip(*curve, strict=True), label=None if seed else label, **style)
        return
    values = [[value for _, value in points] for points in zip(*curves, strict=True)]
    axes.plot(places, list(map(statistics.fmean, values)), marker=marker, markersize=4, label=label, **style)
    axes.fill_between(
        places, list(map(min, values)), list(map(max, values)), color=style["color"], alpha=0.2, linewidth=0
    )


def paint_histogram(axes: Any, number: int, label: str, each: Evidence) -> None:
    """Plot the histogram of the first seed."""
    found = histogram_of(each.results[0])
    assert found is not None  # only cells with a histogram are painted
    axes.stairs(
        found.counts, found.edges, fill=True, alpha=0.6, color=COLORS[number % len(COLORS)], label=figure_text(label)
    )
    axes.locator_params(axis="x", nbins=6)  # more labels overlap in a narrow figure


def axes_grid(count: int) -> tuple[Figure, Sequence[Any]]:
    """Create a figure with two axes per row."""
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


def name_axes(axes: Any, result: CellResult, title: str) -> None:
    """Set title, axis labels and scale for the measure of a result."""
    measure = result.measure
    across, upward = AXES.get(measure, ("", ""))
    if result.details.get("units") == "deviations":
        across = "epsilon, standard deviations"
    axes.set(xlabel=across, ylabel=upward)
    axes.set_title(figure_text(title), fontsize=10)
    if measure == FALLING:
        low, high = axes.dataLim.intervaly
        if high > 10 * low > 0:
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter(NullFormatter())
        else:
            axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)


def paint_values(axes: Any, cells: Sequence[Evidence]) -> None:
    """Plot the mean of each cell with its interval over seeds: columns on the x axis, rows as lines."""
    columns = list(dict.fromkeys(each.cell.column for each in cells))
    rows = list(dict.fromkeys(each.cell.row for each in cells))
    for number, row in enumerate(rows):
        found = [each for each in cells if each.cell.row == row]
        samples = [list(each.values.values()) for each in found]
        axes.errorbar(
            [columns.index(each.cell.column) + 0.06 * (number - (len(rows) - 1) / 2) for each in found],
            [statistics.fmean(values) for values in samples],
            [mean_interval(values).half_width if len(values) > 1 else 0 for values in samples],
            color=COLORS[number % len(COLORS)],
            marker=MARKERS[number % len(MARKERS)],
            capsize=3,
            label=figure_text(row),
        )
    axes.set_xticks(range(len(columns)), [figure_text(column) for column in columns])
    axes.set_xlim(-0.4, len(columns) - 0.6)
    axes.legend(fontsize=8)


KINDS = {".png": "png", ".svg": "svg+xml"}
MOST_PICTURE = 64 << 20  # bytes
Group = list[Evidence]
Painter = Callable[[Any, int, str, Evidence], None]
CHARTS: tuple[tuple[str, Callable[[CellResult], bool], Painter], ...] = (
    ("Curves", lambda result: len(curve_of(result)) > 1, paint_curve),
    ("Histograms", lambda result: histogram_of(result) is not None, paint_histogram),
)


def table_figures(paper: PaperEvidence, name: str) -> list[ThemedFigure]:
    """Return all figures of a table or figure of the paper."""
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


def _chart(title: str, paper: PaperEvidence, cells: Group, paint: Painter) -> ThemedFigure:
    """Plot cells; those with the same measure, settings and data share axes."""
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
            name_axes(axes, group[0].results[0], common)
        return figure

    several = any(len(each.results) > 1 for each in cells)
    caption = describe_conditions(paper.profile, cells)
    caption += " Lines are means over seeds, shades their range." if several else ""
    warned = dict.fromkeys(text for each in cells for result in each.results for text in result.warnings)
    return render_figure(title, caption, drawn, kind="svg", warning=" ".join(warned))


def _values(paper: PaperEvidence, cells: Group) -> ThemedFigure:
    """Plot the values of a figure without curves."""

    def drawn(theme: Theme) -> Figure:
        figure, (axes,) = axes_grid(1)
        paint_values(axes, cells)
        record = measure_record(cells[0].cell)
        axes.set_ylabel(f"{record.name}, {record.unit}" if record else "")
        return figure

    caption = f"{describe_conditions(paper.profile, cells)} Bars are 95 % intervals over seeds."
    return render_figure("Values", caption, drawn, kind="svg")


def _saved(paper: PaperEvidence, name: str, each: Evidence) -> ThemedFigure:
    """Embed an image that the measure saved next to its result."""
    source = paper.folder / name / str(each.results[0].picture)
    if source.parent != paper.folder / name or source.suffix not in KINDS:
        raise TorchcapsError(f"a result in {paper.folder / name} names an image that is not next to it: {source.name}")
    if source.is_symlink() or (source.exists() and not source.is_file()):
        raise TorchcapsError(f"{source} is not a regular file, but a result names it: replace it")
    try:
        if source.stat().st_size > MOST_PICTURE:
            raise TorchcapsError(f"{source} has more than {MOST_PICTURE:,} bytes, more than any image of a result")
        data = base64.b64encode(source.read_bytes()).decode()
    except OSError as error:
        raise TorchcapsError(f"{source} cannot be read, but a result names it: {error.strerror}") from error
    address = f"data:image/{KINDS[source.suffix]};base64,{data}"
    caption = f"{describe_conditions(paper.profile, [each])} Seed {each.results[0].seed}."
    return ThemedFigure(
        f"{each.cell.row}, {each.cell.column}", caption, address, address, " ".join(each.results[0].warnings)
    )


def _names(group: Group) -> tuple[str, list[str]]:
    """Return what the cells of one axes have in common, and the label of each."""
    columns = list(dict.fromkeys(each.cell.column for each in group))
    rows = list(dict.fromkeys(each.cell.row for each in group))
    if len(columns) == 1:
        return columns[0], [each.cell.row for each in group]
    if len(rows) == 1:
        return rows[0], [each.cell.column for each in group]
    return "", [f"{each.cell.row}, {each.cell.column}" for each in group]
