"""The pictures of which a model is least sure, on one sheet, as the model sees them."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.analysis.style import as_rgb, bare, figure_text, house_style, save_figure
from torchcaps.data.base import as_floats
from torchcaps.data.images import picture_form, read_pictures
from torchcaps.models import Model
from torchcaps.prediction.answers import Predictions

SHOWN, COLUMNS = 24, 6
LONGEST = 24  # letters of a name under a picture


def draw_least_sure(model: Model, predictions: Predictions, target: Path, *, count: int = SHOWN) -> int:
    """Write a PNG file with at most ``count`` pictures, each with its two likeliest classes; how many there are."""
    size, grey = picture_form(model.image_shape)
    chosen = predictions.least_sure(count)
    read = read_pictures([each.path for each in chosen], boundary=None, size=size, grey=grey)
    pairs = [(each, pixels) for each, pixels in zip(chosen, read, strict=True) if isinstance(pixels, Tensor)]
    columns = min(COLUMNS, len(pairs))
    rows = -(-len(pairs) // columns)
    with house_style():
        figure = Figure(figsize=(1.75 * columns, 2.25 * rows), layout="constrained")
        grid = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axes in grid:
            bare(axes)
        for axes, (answer, pixels) in zip(grid, pairs, strict=False):
            axes.imshow(as_rgb(as_floats(pixels)))
            lines = [f"{shortened(name)}: {share:.0%}" for name, share in predictions.top(answer, 2)]
            axes.set_title("\n".join(map(figure_text, lines)), fontsize=8)
            below = shortened(f"{answer.path.parent.name}/{answer.path.name}")
            axes.set_xlabel(figure_text(below), fontsize=7)
        save_figure(figure, target)
    return len(pairs)


def shortened(name: str) -> str:
    """A name that fits under a picture; its end tells more than its middle.

    >>> shortened("holiday-photograph-0042.jpeg")
    'holiday-pho…ph-0042.jpeg'
    """
    if len(name) <= LONGEST:
        return name
    half = LONGEST // 2
    return f"{name[: half - 1]}…{name[-half:]}"
