"""A picture of how time and memory grow, with the fitted exponents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator

from torchcaps.files import atomic_path

COLOURS = {"torchcaps": "#0072b2", "plain": "#e69f00"}  # distinguishable for all kinds of colour vision
INK = "#7a8594"  # readable on light and on dark pages
STYLE = {"svg.hashsalt": "torchcaps", "svg.fonttype": "none", "axes.edgecolor": INK, "font.size": 9}
STYLE |= dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color", "legend.labelcolor"), INK)


def draw_growth(growth: dict[str, Any], target: Path) -> None:
    """Write an SVG with a column for each axis and, for each model, a row of seconds and one of megabytes."""
    columns = list(next(iter(growth.values())))
    with plt.rc_context(STYLE):  # type: ignore[arg-type]
        size = 2.6 * len(columns), 4.6 * len(growth)
        figure, grid = plt.subplots(2 * len(growth), len(columns), figsize=size, squeeze=False, layout="tight")
        for number, (model, axes) in enumerate(growth.items()):
            for column, title in enumerate(columns):
                above, below = grid[2 * number, column], grid[2 * number + 1, column]
                _draw_times(above, axes[title])
                _draw_bytes(below, axes[title])
                above.set_title(f"{model}: {title}")
                for plot in (above, below):
                    _finish(plot, axes[title]["values"])
            grid[2 * number, 0].set_ylabel("seconds per step")
            grid[2 * number + 1, 0].set_ylabel("peak memory, MB")
        with atomic_path(target) as temporary:
            figure.savefig(temporary, format="svg", transparent=True, metadata={"Date": None})
        plt.close(figure)


def _draw_times(plot: Axes, axis: dict[str, Any]) -> None:
    for form in [form for form in COLOURS if form in axis["seconds"]]:
        measured = axis["seconds"][form]
        points = measured["points"]
        middles = [point["median"] for point in points]
        lower = [point["median"] - point["lower_quartile"] for point in points]
        upper = [point["upper_quartile"] - point["median"] for point in points]
        label = f"{form}, x^{measured['exponent']:.2f}"
        plot.errorbar(axis["values"], middles, (lower, upper), color=COLOURS[form], marker="o", ms=3, label=label)


def _draw_bytes(plot: Axes, axis: dict[str, Any]) -> None:
    for form in [form for form in COLOURS if form in axis["bytes"]]:
        measured = axis["bytes"][form]
        megabytes = [size / 1e6 for size in measured["peak"]]
        label = f"{form}, x^{measured['exponents']['peak']:.2f}"
        plot.plot(axis["values"], megabytes, color=COLOURS[form], marker="o", ms=3, label=label)


def _finish(plot: Axes, values: list[int]) -> None:
    plot.set(xscale="log", yscale="log")
    low, high = plot.get_ylim()
    middle, half = (low * high) ** 0.5, max((high / low) ** 0.5, 10**0.5)
    plot.set_ylim(middle / half, middle * half)  # a factor of ten at least: a tremor should not look like growth
    plot.xaxis.set_major_locator(FixedLocator(values))
    plot.xaxis.set_minor_locator(NullLocator())
    plot.xaxis.set_major_formatter("{x:.0f}")
    plot.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    plot.yaxis.set_minor_locator(NullLocator())
    plot.yaxis.set_major_formatter("{x:g}")
    plot.grid(alpha=0.3)
    plot.legend(frameon=False, fontsize=7)
