"""Common style of all figures, and helpers to draw images and to save figures. Matplotlib is imported on first use."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from torchcaps.files import atomic_path, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette: distinguishable with any color vision, on light and dark backgrounds.
GRAY = "#8c8c8c"
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", GRAY, "#b8a500")
Theme = dict[str, str]
THEMES: dict[str, Theme] = {
    "light": {"text": "#1c2430", "grid": "#d5dbe3", "cmap": "Blues"},
    "dark": {"text": "#e4e8ee", "grid": "#3a4554", "cmap": "cividis"},
}
SETTINGS: dict[str, Any] = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "torchcaps",  # makes the ids inside an SVG file reproducible
}


@contextlib.contextmanager
def figure_style(theme: str = "light") -> Iterator[Theme]:
    """Context manager that applies the common style to figures that are created inside it."""
    import matplotlib
    from cycler import cycler

    chosen = THEMES[theme]
    settings = SETTINGS | {"axes.prop_cycle": cycler(color=COLORS)}
    settings |= dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), chosen["text"])
    settings |= dict.fromkeys(("axes.edgecolor", "grid.color"), chosen["grid"])
    with matplotlib.rc_context(settings):  # type: ignore[arg-type]
        yield chosen


def new_figure(width: float, height: float, **settings: Any) -> Figure:
    """Create a figure of this size in inches, without pyplot."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), **settings)


def save_figure(figure: Figure, target: Path) -> None:
    """Write a figure atomically as PNG or SVG, depending on the file's extension. Needs no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    kind = target.suffix.removeprefix(".")
    settings: dict[str, Any] = {"metadata": {"Date": None}} if kind == "svg" else {"dpi": 120}
    with figure_style(), atomic_path(target) as temporary:
        figure.savefig(temporary, format=kind, bbox_inches="tight", facecolor="white", **settings)


def dark_png(figure: Figure) -> bytes:
    """Return a figure that was drawn in the light theme as a PNG image for dark pages, without a background."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.spines import Spine
    from matplotlib.text import Text

    light, dark = THEMES["light"], THEMES["dark"]
    FigureCanvasAgg(figure).draw()  # type: ignore[no-untyped-call]  # creates all tick labels
    for text in figure.findobj(Text):
        if text.get_color() == light["text"]:
            text.set_color(dark["text"])
    for axes in figure.axes:
        axes.tick_params(which="both", color=dark["text"], grid_color=dark["grid"])
    for spine in figure.findobj(Spine):
        spine.set_edgecolor(dark["grid"])
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120, bbox_inches="tight", transparent=True)
    return buffer.getvalue()


def figure_text(name: str) -> str:
    r"""Escape a name so that matplotlib draws it literally: no formulas, no control characters.

    Use it for every name that comes from a user or a file.

    >>> figure_text("cost $5_$")
    'cost \\$5_\\$'
    """
    return printable(name).replace("$", r"\$")


def figure_label(name: str, width: int = 28) -> str:
    """Escape a name as :func:`figure_text` does, and break a long one after commas and colons.

    >>> figure_label("capsnet:routing=uniform,learning_rate=0.002")
    'capsnet:routing=uniform,\\nlearning_rate=0.002'
    """
    lines = [""]
    for part in re.split(r"(?<=[,:])", figure_text(name)):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def as_rgb(image: Tensor) -> Any:
    """Convert an image (C, H, W) in [0, 1] to an array (H, W, 3). Unless there are 3 channels, they are averaged."""
    pixels = image.detach().cpu().clamp(0, 1)
    if len(pixels) != 3:
        pixels = pixels.mean(0, keepdim=True).expand(3, -1, -1)
    return pixels.permute(1, 2, 0).numpy()


def png_bytes(image: Tensor) -> bytes:
    """Encode an image (C, H, W) in [0, 1] as PNG."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray((as_rgb(image) * 255).round().astype(np.uint8)).save(buffer, format="PNG")
    return buffer.getvalue()


def tile_images(images: Tensor, gap: int = 2) -> Any:
    """Arrange images (rows, columns, C, H, W) on a transparent background, as one RGBA array."""
    rows, columns, _, height, width = images.shape
    sheet = np.zeros((rows * (height + gap) - gap, columns * (width + gap) - gap, 4))
    for row in range(rows):
        for column in range(columns):
            top, left = row * (height + gap), column * (width + gap)
            sheet[top : top + height, left : left + width, :3] = as_rgb(images[row, column])
            sheet[top : top + height, left : left + width, 3] = 1
    return sheet


def hide_axes(axes: Any) -> None:
    """Remove ticks and frame."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
