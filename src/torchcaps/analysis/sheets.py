"""Figures made of images: moved dimensions, drawings by another decoder, places that voted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.analysis.fields import Extent
from torchcaps.analysis.style import as_rgb, bare, house_style, tiled

CELL, MAP_CELL, NAMES, TITLES = 0.55, 1.1, 0.9, 0.3  # inches


def image_sheet(images: Tensor, rows: Sequence[str], columns: Sequence[str], label: str = "") -> Figure:
    """Images (rows, columns, C, H, W) under the columns' names and beside the rows'."""
    height, width = images.shape[3:]
    with house_style():
        figure = Figure(figsize=(CELL * len(columns) + 1.2, CELL * len(rows) * height / width + 0.6))
        axes = figure.add_subplot()
        axes.imshow(tiled(images), interpolation="nearest")
        bare(axes)
        axes.set_yticks([row * (height + 2) + height / 2 for row in range(len(rows))], rows)
        axes.set_xticks([column * (width + 2) + width / 2 for column in range(len(columns))], columns)
        axes.tick_params(length=0, labeltop=True, labelbottom=False, labelsize=8)
        axes.set_xlabel(label)
    return figure


def map_sheet(
    images: Tensor, rows: Sequence[str], columns: Sequence[str], maps: Sequence[Sequence[Any]], frames: Sequence[Extent]
) -> Figure:
    """Images with heat maps over them.

    Args:
        images: one (C, H, W) per row.
        rows: name of each row.
        columns: name of each column of maps.
        maps: for each row and column, an array (h, w); colours are common to the maps of a row and layer.
        frames: for each column, where the map lies on the image.
    """
    height, width = images.shape[2:]
    across, down = MAP_CELL * (len(columns) + 1) + NAMES, MAP_CELL * len(rows) * height / width + TITLES
    with house_style():
        figure = Figure(figsize=(across, down))
        grid = figure.subplots(len(rows), len(columns) + 1, squeeze=False)
        figure.subplots_adjust(
            left=NAMES / across, right=1, top=1 - TITLES / down, bottom=0, wspace=0.05, hspace=0.05 * width / height
        )
        for row, name in enumerate(rows):
            background = as_rgb(images[row])
            for column, axes in enumerate(grid[row]):
                # Behind a map the image is paler, so that bright strokes do not look like votes.
                axes.imshow(background if column == 0 else 0.35 * background, extent=(0, width, height, 0))
                bare(axes)
            grid[row, 0].set_ylabel(name, fontsize=8, rotation=0, ha="right", va="center")
            for column, values in enumerate(maps[row]):
                _paint_map(grid[row, column + 1], values, _limits(maps[row], frames, column), frames[column])
                grid[row, column + 1].set(xlim=(0, width), ylim=(height, 0))
        for axes, title in zip(grid[0], ("image", *columns), strict=True):
            axes.set_title(title, fontsize=9)
    return figure


def _limits(maps: Sequence[Any], frames: Sequence[Extent], column: int) -> tuple[float, float]:
    """The ends of the colours, from all maps of the same layer; with zero in the middle if some are negative."""
    own = [values for values, frame in zip(maps, frames, strict=True) if frame == frames[column]]
    low, high = min(float(each.min()) for each in own), max(float(each.max()) for each in own)
    return (-max(-low, high), max(-low, high)) if low < 0 else (low, high)


def _paint_map(axes: Any, values: Any, limits: tuple[float, float], frame: Extent) -> None:
    low, high = limits
    axes.imshow(values, cmap="RdBu_r" if low < 0 else "inferno", vmin=low, vmax=high, alpha=0.75, extent=frame)
