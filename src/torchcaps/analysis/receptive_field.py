"""Where on the image a capsule looks: the centres of receptive fields."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchcaps.analysis.inspection import LayerState
from torchcaps.models import Model

Extent = tuple[float, float, float, float]  # left, right, bottom, top, in pixels from the top left corner


def primary_centers(model: Model, grid: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Centres of the rows and columns of the lowest capsules, in pixels.

    Through every convolution before them, a step of the grid grows by the stride, and the first centre moves by half a
    kernel less the padding. A model that is not made of ``features`` and ``primary`` gets an even grid.
    """
    stages = [getattr(model, name, None) for name in ("features", "primary")]
    convolutions = [
        module
        for stage in stages
        if isinstance(stage, nn.Module)
        for module in stage.modules()
        if isinstance(module, nn.Conv2d)
    ]
    centres = []
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
        centres.append(start + step * torch.arange(grid[axis]))
    return centres[0], centres[1]


def grid_extents(model: Model, layers: list[LayerState]) -> list[Extent]:
    """The frame in which the children's grid of each layer lies on the image.

    A parent's centre is the mean of the centres of the children that it sees.
    """
    rows, columns = primary_centers(model, layers[0].child_grid)
    frames = []
    for layer in layers:
        frames.append((*_span(columns, model.image_shape[2]), *reversed(_span(rows, model.image_shape[1]))))
        _, width = layer.child_grid
        present = layer.seen.flatten(1) >= 0  # (P, I*M)
        places = layer.seen.flatten(1).clamp_min(0).cpu() // layer.children.pose.shape[3]
        count = present.sum(1).cpu()
        grid = layer.parents.pose.shape[1:3]
        rows = ((rows[places // width] * present.cpu()).sum(1) / count).view(grid)[:, 0]
        columns = ((columns[places % width] * present.cpu()).sum(1) / count).view(grid)[0]
    return frames  # type: ignore[return-value]


def _span(centres: Tensor, side: int) -> tuple[float, float]:
    """From the outer edge of the first cell to that of the last; the whole side for a grid of one."""
    if len(centres) < 2:
        return 0.0, float(side)
    half = float(centres[-1] - centres[0]) / (len(centres) - 1) / 2
    return float(centres[0]) - half, float(centres[-1]) + half
