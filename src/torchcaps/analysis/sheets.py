"""Figures made of images: moved dimensions, drawings by another decoder, places that voted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.analysis.fields import Extent
from torchcaps.analysis.style import as_rgb, bare, house_style, tiled

CELL = 0.55  # inches


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
    cell = 1.15
    with house_style():
        figure = Figure(figsize=(cell * (len(columns) + 1) + 0.8, cell * len(rows) * height / width + 0.4))
        grid = figure.subplots(len(rows), len(columns) + 1, squeeze=False, gridspec_kw={"wspace": 0.06, "hspace": 0.06})
        for row, name in enumerate(rows):
            background = as_rgb(images[row])
            for column, axes in enumerate(grid[row]):
                # Behind a map the image is paler, so that bright strokes do not look like votes.
                axes.imshow(background if column == 0 else 0.35 * background, extent=(0, width, height, 0))
                bare(axes)
            grid[row, 0].set_ylabel(name, fontsize=8, rotation=0, ha="right", va="center")
            for column, values in enumerate(maps[row]):
                _paint_map(grid[row, column + 1], values, _limit(maps[row], frames, column), frames[column])
                grid[row, column + 1].set(xlim=(0, width), ylim=(height, 0))
        for axes, title in zip(grid[0], ("image", *columns), strict=True):
            axes.set_title(title, fontsize=9)
    return figure


def _limit(maps: Sequence[Any], frames: Sequence[Extent], column: int) -> tuple[float, bool]:
    """The greatest value among the maps of the same layer, and whether any of them is negative."""
    own = [values for values, frame in zip(maps, frames, strict=True) if frame == frames[column]]
    return max(1e-12, *(float(np.abs(values).max()) for values in own)), any(float(each.min()) < 0 for each in own)


def _paint_map(axes: Any, values: Any, limit: tuple[float, bool], frame: Extent) -> None:
    peak, signed = limit
    colours = "RdBu_r" if signed else "inferno"
    alpha = np.clip(np.abs(values) / peak, 0, 1) ** 0.7 * 0.85
    axes.imshow(values, cmap=colours, vmin=-peak if signed else 0, vmax=peak, alpha=alpha, extent=frame)
