"""Figures made of images: moved dimensions, drawings by another decoder, places that voted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.analysis.fields import Extent
from torchcaps.analysis.style import as_rgb, bare, figure_text, house_style, tiled

CELL, MAP_CELL = 0.55, 1.4  # inches


def image_sheet(images: Tensor, rows: Sequence[str], columns: Sequence[str], label: str = "") -> Figure:
    """Images (rows, columns, C, H, W) under the columns' names and beside the rows'."""
    height, width = images.shape[3:]
    with house_style():
        figure = Figure(figsize=(CELL * len(columns) + 1.2, CELL * len(rows) * height / width + 0.6))
        axes = figure.add_subplot()
        axes.imshow(tiled(images), interpolation="nearest")
        bare(axes)
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
    frames: Sequence[Extent],
    *,
    one_scale: bool = False,
) -> Figure:
    """Images with heat maps over them.

    Args:
        images: one (C, H, W) per row.
        rows: name of each row.
        columns: name of each column of maps.
        maps: for each row and column, an array (h, w); colours are common to the maps of a layer in a row.
        frames: for each column, where the map lies on the image.
        one_scale: colours are common to all rows too.
    """
    height, width = images.shape[2:]
    wide, high = width * 1.05, height * 1.05  # of a cell with its gap, in pixels
    with house_style():
        figure = Figure(figsize=(MAP_CELL * (len(columns) + 1) + 0.9, MAP_CELL * len(rows) * height / width + 0.4))
        axes = figure.add_subplot()  # one for all cells: axes of their own would take most of the time
        for row in range(len(rows)):
            background = as_rgb(images[row])
            for column in range(len(columns) + 1):
                cell = (column * wide, column * wide + width, row * high + height, row * high)
                # Behind a map the image is darker, so that bright strokes do not look like votes.
                axes.imshow(background if column == 0 else 0.35 * background, extent=cell)
            for column, values in enumerate(maps[row]):
                left, right, bottom, top = frames[column]
                across, down = (column + 1) * wide, row * high
                low, peak = _limits(maps if one_scale else [maps[row]], frames, column)
                axes.imshow(
                    values,
                    cmap="RdBu_r" if low < 0 else "inferno",
                    vmin=low,
                    vmax=peak,
                    alpha=0.75,
                    extent=(left + across, right + across, bottom + down, top + down),
                )
        bare(axes)
        axes.set(xlim=(0, (len(columns) + 1) * wide), ylim=(len(rows) * high, 0))
        axes.set_yticks([row * high + height / 2 for row in range(len(rows))], [figure_text(row) for row in rows])
        names = ["image", *map(figure_text, columns)]
        axes.set_xticks([column * wide + width / 2 for column in range(len(columns) + 1)], names)
        axes.tick_params(length=0, labeltop=True, labelbottom=False, labelsize=9)
    return figure


def _limits(rows: Sequence[Sequence[Any]], frames: Sequence[Extent], column: int) -> tuple[float, float]:
    """The ends of the colours, from all maps of the same layer; with zero in the middle if some are negative."""
    own = [values for maps in rows for values, frame in zip(maps, frames, strict=True) if frame == frames[column]]
    low, high = min(float(each.min()) for each in own), max(float(each.max()) for each in own)
    return (-max(-low, high), max(-low, high)) if low < 0 else (low, high)
