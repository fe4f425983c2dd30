"""Receptive field centers of capsules, to place maps of a capsule grid on the image."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchcaps.analysis.inspection import LayerState
from torchcaps.models import Model

Extent = tuple[float, float, float, float]  # left, right, bottom, top in pixels; the origin is the top left corner


def primary_centers(model: Model, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return the receptive field centers of the rows and columns of the primary capsules, in pixels.

    Each convolution below them multiplies the step of the grid by its stride and moves the first center by half its
    kernel minus its padding. A model without convolutions in ``features`` and ``primary`` gets an even grid.
    """
    stages = [getattr(model, name, None) for name in ("features", "primary")]
    convolutions = [
        module
        for stage in stages
        if isinstance(stage, nn.Module)
        for module in stage.modules()
        if isinstance(module, nn.Conv2d)
    ]
    centers = []
    for axis in (0, 1):
        start, step = 0.5, 1.0
        for convolution in convolutions:
            kernel, padding = convolution.kernel_size[axis], convolution.padding
            pad = padding[axis] if isinstance(padding, tuple) else (kernel - 1) / 2  # "same"
            start += ((kernel - 1) / 2 - pad) * step
            step *= convolution.stride[axis]
        if not convolutions:
            step = model.image_shape[1 + axis] / grid[axis]
            start = step / 2
        centers.append(start + step * torch.arange(grid[axis]))
    return centers[0], centers[1]


def grid_extents(model: Model, layers: list[LayerState]) -> list[Extent]:
    """Return the extent on the image of the grid of children of each layer.

    The center of a parent is the mean of the centers of its children.
    """
    rows, columns = primary_centers(model, layers[0].child_grid)
    extents = []
    for layer in layers:
        extents.append((*_span(columns, model.image_shape[2]), *reversed(_span(rows, model.image_shape[1]))))
        _, width = layer.child_grid
        present = layer.child_index.flatten(1) >= 0  # (P, I*M)
        places = layer.child_index.flatten(1).clamp_min(0).cpu() // layer.children.pose.shape[3]
        count = present.sum(1).cpu()
        grid = layer.parents.pose.shape[1:3]
        rows = ((rows[places // width] * present.cpu()).sum(1) / count).view(grid)[:, 0]
        columns = ((columns[places % width] * present.cpu()).sum(1) / count).view(grid)[0]
    return extents  # type: ignore[return-value]


def _span(centers: Tensor, side: int) -> tuple[float, float]:
    """Return the outer edges of the first and the last cell; the whole side for a grid of one cell."""
    if len(centers) < 2:
        return 0.0, float(side)
    half = float(centers[-1] - centers[0]) / (len(centers) - 1) / 2
    return float(centers[0]) - half, float(centers[-1]) + half
