"""Curves of robustness: accuracy against epsilon, an attack's iterations, and the strength of an affine change."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from matplotlib.figure import Figure

from torchcaps.analysis.figures import image_sheet
from torchcaps.analysis.style import COLORS, figure_text, hide_axes, tile_images
from torchcaps.attacks import attacks
from torchcaps.data.base import as_floats
from torchcaps.evaluate.acgan import GanSettings, generate
from torchcaps.evaluate.overlap import overlap_reconstructions, overlap_set
from torchcaps.models import Model

# MERGED Digits to look at: overlaid ones that a model draws apart, and those that a GAN draws.
MARKERS = "osD^vPXd"
AXES = {  # of the factors of an affine change, in this order
    "rotation": "rotation, degrees",
    "shear_x": "shear, degrees",
    "scale": "scale",
    "shift_x": "shift to the right, px",
    "shift_y": "shift down, px",
}

Results = Mapping[str, Sequence[dict[str, Any]]]  # by label; several seeds are averaged


def attack_curves(results: Results) -> Figure:
    """Accuracy against epsilon, an axes for each attack; what failed a sanity check is dashed and hollow.

    Args:
        results: of :func:`torchcaps.evaluate.attack_model`, by label.
    """
    names = list(dict.fromkeys(row["attack"] for each in results.values() for run in each for row in run["attacks"]))
    figure, grid = _grid(len(names))
    norm = next(iter(results.values()))[0]["norm"]
    for axes, name in zip(grid, names, strict=True):
        for number, (label, runs) in enumerate(results.items()):
            clean = statistics.fmean(run["clean_accuracy"] for run in runs)
            found: dict[float, list[float]] = {}
            for row in (row for run in runs for row in run["attacks"] if row["attack"] == name):
                found.setdefault(row["epsilon"], []).append(row["accuracy"])
            points = sorted({0.0: [clean], **found}.items())
            suspect = any(run["sanity"] for run in runs)
            _line(
                axes,
                number,
                f"{label} (sanity failed)" if suspect else label,
                [epsilon for epsilon, _ in points],
                [statistics.fmean(values) for _, values in points],
                hollow=suspect,
            )
        box = "sees gradients" if attacks.get(name).white_box else "sees no gradient"
        axes.set_title(f"{name} ({box})", fontsize=10)
        axes.set_xlabel(f"epsilon, {norm}, pixels in [0, 1]")
    return _finished(figure, grid)


def history_curves(results: Results) -> Figure:
    """Accuracy against the iterations of an attack that learns, an axes for each epsilon.

    Args:
        results: of :func:`torchcaps.evaluate.attack_model`, by label; some rows have a ``history``.
    """
    rows = {
        label: [row for run in runs for row in run["attacks"] if "history" in row] for label, runs in results.items()
    }
    panels = sorted({(row["attack"], row["epsilon"]) for found in rows.values() for row in found})
    figure, grid = _grid(len(panels))
    for axes, (attack, epsilon) in zip(grid, panels, strict=True):
        for number, (label, found) in enumerate(rows.items()):
            histories = [row["history"] for row in found if (row["attack"], row["epsilon"]) == (attack, epsilon)]
            if histories:
                iterations = sorted(map(int, histories[0]))
                means = [statistics.fmean(each[str(iteration)] for each in histories) for iteration in iterations]
                _line(axes, number, label, iterations, means)
        axes.set_title(f"{attack}, epsilon {epsilon:.3g}", fontsize=10)
        axes.set_xlabel("attack iteration")
    return _finished(figure, grid)


def acgan_chart(results: Results) -> Figure:
    """Error on what a GAN draws, against the epochs of its training.

    Args:
        results: of :func:`torchcaps.evaluate.drawn.measure_acgan`, by label.
    """
    figure, grid = _grid(1, "error, %")
    for number, (label, runs) in enumerate(results.items()):
        epochs = list(runs[0]["error_by_epoch"])
        means = [statistics.fmean(run["error_by_epoch"][epoch] for run in runs) for epoch in epochs]
        _line(grid[0], number, label, [int(epoch) for epoch in epochs], means)
    grid[0].set_xlabel("epoch of the AC-GAN")
    grid[0].set_xticks([int(epoch) for epoch in epochs])
    return _finished(figure, grid, limits=None)


def affine_chart(results: Results) -> Figure:
    """Accuracy against the strength of each affine factor, an axes for each.

    Args:
        results: of :func:`torchcaps.evaluate.measure_affine`, by label.
    """
    measured = next(iter(results.values()))[0]["curves"]
    factors = [factor for factor in AXES if factor in measured]
    figure, grid = _grid(len(factors))
    for axes, factor in zip(grid, factors, strict=True):
        for number, (label, runs) in enumerate(results.items()):
            curves = [run["curves"][factor] for run in runs]
            means = [statistics.fmean(values) for values in zip(*(curve["accuracy"] for curve in curves), strict=True)]
            _line(axes, number, label, curves[0]["strength"], means)
        axes.set_xlabel(AXES[factor])
    return _finished(figure, grid)


def _grid(count: int, upward: str = "accuracy, %") -> tuple[Figure, list[Any]]:
    """Axes side by side, at most three in a row, all with the same axis upward."""
    columns = 2 if count == 4 else min(3, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(9 if count > 1 else 5, 2.8 * rows + 0.5))
    figure.set_layout_engine("constrained")
    grid = list(figure.subplots(rows, columns, sharey=True, squeeze=False).flat)
    for axes in grid[count:]:
        axes.set_axis_off()
    for row in range(rows):
        grid[row * columns].set_ylabel(upward)
    return figure, grid[:count]


def _line(
    axes: Any, number: int, label: str, places: Sequence[float], shares: Sequence[float], *, hollow: bool = False
) -> None:
    colour = COLORS[number % len(COLORS)]
    style: dict[str, Any] = {"linestyle": "--", "markerfacecolor": "none"} if hollow else {}
    percent = [100 * share for share in shares]
    axes.plot(
        places,
        percent,
        color=colour,
        marker=MARKERS[number % len(MARKERS)],
        markersize=4,
        label=figure_text(label),
        alpha=0.9,
        **style,
    )


def _finished(figure: Figure, grid: Sequence[Any], limits: tuple[float, float] | None = (-3, 103)) -> Figure:
    for axes in grid:
        axes.set_ylim(limits)
        axes.grid(alpha=0.6)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))
    return figure


ROWS = ("image", "digit", "drawn", "digit", "drawn")  # of a sheet of overlaid digits


def overlap_sheet(model: Model, data: str, count: int = 10) -> Figure:
    """Overlaid digits, and each digit as the model draws it on its own."""
    pictures = overlap_reconstructions(model, overlap_set(model, data), count).transpose(0, 1)  # (5, count, C, H, W)
    figure = Figure(figsize=(0.75 * pictures.shape[1], 0.75 * len(ROWS)))
    axes = figure.add_subplot()
    axes.imshow(tile_images(pictures))
    hide_axes(axes)
    side = pictures.shape[-1] + 2
    axes.set_yticks([side * (row + 0.5) - 1.5 for row in range(len(ROWS))], ROWS)
    axes.tick_params(length=0)
    return figure


def acgan_sheet(settings: GanSettings, epochs: int) -> Figure:
    """A digit of each kind as it was drawn after each epoch."""
    drawn = [generate(settings.folder(), epoch, 10) for epoch in range(1, epochs + 1)]
    images = torch.stack([as_floats(each.images) for each in drawn])  # (epochs, 10, 1, 28, 28)
    return image_sheet(images, [f"epoch {epoch}" for epoch in range(1, epochs + 1)], drawn[0].class_names)
