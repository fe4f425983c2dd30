"""Digits to look at: overlaid ones that a model draws apart, and those that a GAN draws."""

from __future__ import annotations

import torch
from matplotlib.figure import Figure

from torchcaps.analysis.sheets import image_sheet
from torchcaps.analysis.style import bare, tiled
from torchcaps.data.base import as_floats
from torchcaps.evaluate.acgan import GanSettings, generate
from torchcaps.evaluate.overlap import overlap_drawings, overlap_set
from torchcaps.models import Model

ROWS = ("image", "digit", "drawn", "digit", "drawn")  # of a sheet of overlaid digits


def overlap_sheet(model: Model, data: str, count: int = 10) -> Figure:
    """Overlaid digits, and each digit as the model draws it on its own."""
    pictures = overlap_drawings(model, overlap_set(model, data), count).transpose(0, 1)  # (5, count, C, H, W)
    figure = Figure(figsize=(0.75 * pictures.shape[1], 0.75 * len(ROWS)))
    axes = figure.add_subplot()
    axes.imshow(tiled(pictures))
    bare(axes)
    side = pictures.shape[-1] + 2
    axes.set_yticks([side * (row + 0.5) - 1.5 for row in range(len(ROWS))], ROWS)
    axes.tick_params(length=0)
    return figure


def acgan_sheet(settings: GanSettings, epochs: int) -> Figure:
    """A digit of each kind as it was drawn after each epoch."""
    drawn = [generate(settings.folder(), epoch, 10) for epoch in range(1, epochs + 1)]
    images = torch.stack([as_floats(each.images) for each in drawn])  # (epochs, 10, 1, 28, 28)
    return image_sheet(images, [f"epoch {epoch}" for epoch in range(1, epochs + 1)], drawn[0].class_names)
