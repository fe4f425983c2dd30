"""Figures of the explainers: charts of measured values, sheets of images, and vote maps over images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from torchcaps.analysis.couplings import CapsuleActivity
from torchcaps.analysis.dynamics import RoutingDynamics
from torchcaps.analysis.inspection import Extent
from torchcaps.analysis.style import COLORS, GRAY, as_rgb, figure_style, figure_text, hide_axes, new_figure, tile_images

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_CLASSES = 10
CELL, MAP_CELL = 0.55, 1.4  # inches
MARKS: dict[str, Any] = {"color": GRAY, "markersize": 6, "markeredgecolor": "white"}  # for a paper's values


def compactness_chart(data: dict[str, Any]) -> Figure:
    """Plot a bar per factor, a mark per network of the paper, and a line at the maximum score."""
    names = list(data["factors"])
    places = np.arange(len(names))
    with figure_style():
        figure = new_figure(8, 3.4)
        axes = figure.add_subplot()
        for shift, key, words in ((-0.2, "score", "mean score"), (0.2, "score_of_mean_shares", "score of mean shares")):
            scores = [data["factors"][name][key] or 0.0 for name in names]
            axes.bar(places + shift, scores, width=0.36, label=f"this run: {words}")
        for (network, values), marker in zip(data["paper"].items(), "sv^o", strict=True):
            axes.plot(places, values, marker, **MARKS, label=f"gu2021: {network}")
        axes.set_xticks(places, names)
        axes.axhline(data["greatest"], color=COLORS[4], linestyle="--", label=f"maximum: log {data['size']}")
        axes.set(yscale="log", ylabel="KL to uniform, nats")
        axes.grid(axis="y", alpha=0.6)
        axes.legend(fontsize=8, bbox_to_anchor=(1, 1), loc="upper left")
    return figure


def alignment_chart(data: dict[str, Any]) -> Figure:
    """Plot the ratios with those of random vectors (left), and the cosines of + against - (right)."""
    keys = [(factor, sign) for sign in "+-" for factor in data["ratio"]]
    names = [f"{factor} {sign}" for factor, sign in keys]
    own, paper, printed = data["random"]["own_size"], data["random"]["paper_size"], data["paper"]["random"]
    with figure_style():
        figure = new_figure(11, 3.8, layout="constrained")
        left, right = figure.subplots(1, 2)
        means = [data["ratio"][factor][sign]["mean"] or 0.0 for factor, sign in keys]
        left.bar(names, means, width=0.6, label="this run")
        marks = [data["paper"]["ratio"][factor][sign] for factor, sign in keys]
        left.plot(names, marks, "D", **MARKS, label="choi2019, table 3")
        for value, color, line, words in (
            (own["mean"], COLORS[4], "-", f"random, {own['size']}-D, computed: {own['mean']:.3f}"),
            (paper["mean"], COLORS[1], "--", f"random, {paper['size']}-D, computed: {paper['mean']:.3f}"),
            (printed["mean"], GRAY, ":", f"random, {printed['size']}-D, reported: {printed['mean']:.3f}"),
        ):
            left.axhline(value, color=color, linestyle=line, label=words)
        left.set(ylim=(0, 1), ylabel="alignment ratio")
        left.tick_params(axis="x", labelrotation=25)
        left.legend(fontsize=8, bbox_to_anchor=(0, -0.3), loc="upper left", ncols=2)
        for factor, cosine in data["cosine"].items():
            counts = np.asarray(cosine["counts"])
            right.stairs(counts, np.linspace(-1, 1, len(counts) + 1), label=factor, linewidth=1.6)
        right.set(
            xlabel="cosine between the align vectors of + and -",
            ylabel="images",
            xlim=(-1, 1),
            xticks=(-1, -0.5, 0, 0.5, 1),
        )
        right.legend(fontsize=8)
    return figure


def vote_chart(histograms: dict[str, Any], scores: Sequence[float], names: Sequence[str], *, log: bool) -> Figure:
    """Plot the histograms of one image: a row per iteration, the class capsules side by side."""
    edges, weights = np.asarray(histograms["edges"]), np.asarray(histograms["weights"])  # (T, classes, bins)
    order = sorted(np.argsort(scores)[::-1][:MAX_CLASSES].tolist())
    winner = int(np.argmax(scores))
    reach = float(edges[-1])
    step = 1.15 * reach  # one axes for all classes: thirty axes would take seconds to draw
    with figure_style():
        figure = new_figure(1.1 * len(order) + 0.8, 1.2 * len(weights) + 0.7)
        grid = figure.subplots(len(weights), 1, squeeze=False, sharex=True, sharey=True)[:, 0]
        for row, axes in enumerate(grid):
            for place, label in enumerate(order):
                color = COLORS[4] if label == winner else COLORS[0]
                axes.stairs(weights[row, label], edges + place * step, fill=True, color=color)
            if log:  # four decades
                axes.set(yscale="log", ylim=(1e-4 * weights.max(), 2 * weights.max()))
            axes.set_ylabel(f"iteration {row + 1}", fontsize=8)
            axes.tick_params(labelsize=7)
            axes.set(xlim=(-0.1 * reach, len(order) * step))
        ends = [(place * step + end, f"{end:.2g}") for place in range(len(order)) for end in (0.0, reach / 2)]
        grid[-1].set_xticks([place for place, _ in ends], [text for _, text in ends])
        grid[-1].set_xlabel("distance between votes and the capsule's mean, weighted by assignment", fontsize=9)
        for place, label in enumerate(order):
            grid[0].text(
                place * step + reach / 2,
                1.04,
                f"{names[label]}: {scores[label]:.2f}",
                transform=grid[0].get_xaxis_transform(),
                ha="center",
                fontsize=8,
            )
    return figure


def entropy_chart(data: dict[str, list[dict[str, Any]]]) -> Figure:
    """Plot a group of bars per layer, with a bar per iteration."""
    with figure_style():
        figure = new_figure(1.8 + 1.6 * len(data), 3.2)
        axes = figure.add_subplot()
        most = max(len(entropies) for entropies in data.values())
        for iteration in range(most):
            places = [index + 0.8 * (iteration - (most - 1) / 2) / most for index in range(len(data))]
            values = [(entropies[min(iteration, len(entropies) - 1)]["relative"] or 0.0) for entropies in data.values()]
            bars = axes.bar(
                places,
                values,
                width=0.7 / most,
                label=f"iteration {iteration + 1}",
                color=COLORS[iteration % len(COLORS)],
            )
            axes.bar_label(bars, fmt="%.3f", fontsize=8)
        axes.set_xticks(range(len(data)), [f"{name}\nover {each[0]['over']}" for name, each in data.items()])
        axes.set(ylim=(0, 1.12), ylabel="entropy / maximum")
        if most > 1:
            axes.legend(fontsize=8, bbox_to_anchor=(1, 1), loc="upper left")
    return figure


def dynamics_chart(layers: Sequence[RoutingDynamics]) -> Figure:
    """Plot the shares of starved parents and of static variance, a group of bars per layer."""
    with figure_style():
        figure = new_figure(2.2 + 1.6 * len(layers), 3.2)
        axes = figure.add_subplot()
        shares = {"starved": [each.starved for each in layers], "static": [each.static or 0.0 for each in layers]}
        for number, (name, values) in enumerate(shares.items()):
            places = [index + 0.4 * (number - 0.5) for index in range(len(layers))]
            bars = axes.bar(places, values, width=0.35, label=name, color=COLORS[number])
            axes.bar_label(bars, fmt="%.2f", fontsize=8)
        axes.set_xticks(range(len(layers)), [each.name for each in layers])
        axes.set(ylim=(0, 1.12), ylabel="share")
        axes.legend(fontsize=8, bbox_to_anchor=(1, 1), loc="upper left")
    return figure


def activity_chart(layers: Sequence[CapsuleActivity]) -> Figure:
    """Plot how often each capsule type has the highest presence, and its maximum presence, per layer."""
    with figure_style():
        figure = new_figure(8, 1.7 * len(layers) + 0.3, layout="constrained")
        for axes, layer in zip(figure.subplots(len(layers), 1, squeeze=False)[:, 0], layers, strict=True):
            types = range(len(layer.win_share))
            dead = set(layer.inactive) | set(layer.never_highest)
            axes.bar(types, 100 * layer.win_share.numpy(), color=COLORS[0], width=0.7)
            axes.set_xticks(types, [str(number) for number in types])
            for number in dead:
                axes.get_xticklabels()[number].set_color(COLORS[4])
            axes.set(
                ylabel="% highest",
                title=f"{layer.name}: {len(layer.inactive)} inactive, {len(layer.never_highest)} never highest",
            )
            axes.title.set_fontsize(9)
            peaks = axes.twinx()
            peaks.plot(types, layer.max_presence.numpy(), "_", color=COLORS[1], markersize=12, markeredgewidth=2)
            peaks.set(ylim=(0, 1.08 * float(layer.max_presence.max()) or 1.0))
            peaks.set_ylabel("maximum\npresence", color=COLORS[1])
            peaks.spines["right"].set_visible(False)
    return figure


def image_sheet(images: Tensor, rows: Sequence[str], columns: Sequence[str], label: str = "") -> Figure:
    """Show images (rows, columns, C, H, W) with the names of rows and columns."""
    height, width = images.shape[3:]
    with figure_style():
        figure = new_figure(CELL * len(columns) + 1.2, CELL * len(rows) * height / width + 0.6)
        axes = figure.add_subplot()
        axes.imshow(tile_images(images), interpolation="nearest")
        hide_axes(axes)
        axes.set_yticks(
            [row * (height + 2) + height / 2 for row in range(len(rows))], [figure_text(row) for row in rows]
        )
        axes.set_xticks(
            [column * (width + 2) + width / 2 for column in range(len(columns))],
            [figure_text(name) for name in columns],
        )
        axes.tick_params(length=0, labeltop=True, labelbottom=False, labelsize=8)
        axes.set_xlabel(figure_text(label))
    return figure


def map_sheet(
    images: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    maps: Sequence[Sequence[Any]],
    extents: Sequence[Extent],
    *,
    one_scale: bool = False,
) -> Figure:
    """Show images with heat maps over them.

    Args:
        images: one (C, H, W) per row.
        rows: name of each row.
        columns: name of each column of maps.
        maps: an array (h, w) for each row and column. The maps of a layer in a row share a color scale.
        extents: for each column, the extent of the map on the image.
        one_scale: share the color scale between all rows too.
    """
    height, width = images.shape[2:]
    wide, high = width * 1.05, height * 1.05  # size of a cell with its gap, in pixels
    with figure_style():
        figure = new_figure(MAP_CELL * (len(columns) + 1) + 0.9, MAP_CELL * len(rows) * height / width + 0.4)
        axes = figure.add_subplot()  # one for all cells: an axes per cell would take most of the time
        for row in range(len(rows)):
            background = as_rgb(images[row])
            for column in range(len(columns) + 1):
                cell = (column * wide, column * wide + width, row * high + height, row * high)
                # The image is darker behind a map, so that bright strokes do not look like votes.
                axes.imshow(background if column == 0 else 0.35 * background, extent=cell)
            for column, values in enumerate(maps[row]):
                left, right, bottom, top = extents[column]
                across, down = (column + 1) * wide, row * high
                low, peak = _limits(maps if one_scale else [maps[row]], extents, column)
                axes.imshow(
                    values,
                    cmap="RdBu_r" if low < 0 else "inferno",
                    vmin=low,
                    vmax=peak,
                    alpha=0.75,
                    extent=(left + across, right + across, bottom + down, top + down),
                )
        hide_axes(axes)
        axes.set(xlim=(0, (len(columns) + 1) * wide), ylim=(len(rows) * high, 0))
        lines = ["\n".join(map(figure_text, row.split("\n"))) for row in rows]  # a name and its score
        axes.set_yticks([row * high + height / 2 for row in range(len(rows))], lines)
        names = ["image", *map(figure_text, columns)]
        axes.set_xticks([column * wide + width / 2 for column in range(len(columns) + 1)], names)
        axes.tick_params(length=0, labeltop=True, labelbottom=False, labelsize=9)
    return figure


def _limits(rows: Sequence[Sequence[Any]], extents: Sequence[Extent], column: int) -> tuple[float, float]:
    """Return the color limits of all maps of the same layer, centered on zero if any value is negative."""
    own = [values for maps in rows for values, extent in zip(maps, extents, strict=True) if extent == extents[column]]
    low, high = min(float(each.min()) for each in own), max(float(each.max()) for each in own)
    return (-max(-low, high), max(-low, high)) if low < 0 else (low, high)
