"""How figures look, and images as figures want them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.files import atomic_path, printable

# Distinguishable for all kinds of colour vision (Okabe and Ito), and on both backgrounds.
GRAY = "#8c8c8c"
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", GRAY, "#b8a500")
Theme = dict[str, str]
THEMES: dict[str, Theme] = {
    "light": {"text": "#1c2430", "grid": "#d5dbe3", "cmap": "Blues"},
    "dark": {"text": "#e4e8ee", "grid": "#3a4554", "cmap": "cividis"},
}
SETTINGS: dict[str, Any] = {
    "font.size": 10,
    "axes.prop_cycle": cycler(color=COLORS),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "torchcaps",  # else the same figure has other names inside every time
}


@contextlib.contextmanager
def figure_style(theme: str = "light") -> Iterator[Theme]:
    """Figures that are made inside look alike."""
    chosen = THEMES[theme]
    settings = dict(SETTINGS)
    settings |= dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), chosen["text"])
    settings |= dict.fromkeys(("axes.edgecolor", "grid.color"), chosen["grid"])
    with matplotlib.rc_context(settings):  # type: ignore[arg-type]
        yield chosen


def save_figure(figure: Figure, target: Path) -> None:
    """Write a PNG or SVG file, by the name's ending, whole or not at all, without a screen."""
    FigureCanvasAgg(figure)
    kind = target.suffix.removeprefix(".")
    settings: dict[str, Any] = {"metadata": {"Date": None}} if kind == "svg" else {"dpi": 120}
    with figure_style(), atomic_path(target) as temporary:
        figure.savefig(temporary, format=kind, bbox_inches="tight", facecolor="white", **settings)


def figure_text(name: str) -> str:
    r"""A name that matplotlib draws literally: dollar signs start no formula, and control characters are replaced.

    Every name that a user or a file gives goes through this before it becomes part of a figure.

    >>> figure_text("cost $5_$")
    'cost \\$5_\\$'
    """
    return printable(name).replace("$", r"\$")


def as_rgb(image: Tensor) -> Any:
    """(C, H, W) in [0, 1] to an array (H, W, 3); channels that are no colours are averaged."""
    pixels = image.detach().cpu().clamp(0, 1)
    if len(pixels) != 3:
        pixels = pixels.mean(0, keepdim=True).expand(3, -1, -1)
    return pixels.permute(1, 2, 0).numpy()


def tile_images(images: Tensor, gap: int = 2) -> Any:
    """A white sheet with the images on it: (rows, columns, C, H, W) to an array."""
    rows, columns, _, height, width = images.shape
    sheet = np.ones((rows * (height + gap) - gap, columns * (width + gap) - gap, 3))
    for row in range(rows):
        for column in range(columns):
            top, left = row * (height + gap), column * (width + gap)
            sheet[top : top + height, left : left + width] = as_rgb(images[row, column])
    return sheet


def hide_axes(axes: Any) -> None:
    """No ticks and no frame, for pictures."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
