"""Figures of a comparison. Each is rendered for light and for dark pages."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torchcaps.analysis import perturb_dimensions
from torchcaps.analysis.perturbation import reconstruction_change
from torchcaps.analysis.style import COLORS, THEMES, Theme, as_rgb, figure_label, figure_style, figure_text, new_figure
from torchcaps.compare.job import ComparisonResults
from torchcaps.data import ImageSet
from torchcaps.evaluate.figures import Results, affine_chart, attack_curves, overlap_sheet, plot_confusion
from torchcaps.evaluate.overlap import has_conditional_decoder
from torchcaps.html import ThemedFigure, data_url
from torchcaps.models import Model
from torchcaps.train import load, read_metrics
from torchcaps.train.objective import crop_to_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI, CSS_DPI = 144, 96  # of PNG images, and of the pixels of a page


def render_figure(
    title: str, caption: str, plot: Callable[[Theme], Figure], *, kind: str = "png", warning: str = ""
) -> ThemedFigure:
    """Render a figure in both themes, as ``png`` (for images) or ``svg`` (for lines)."""
    images, width = {}, None
    settings: dict[str, Any] = {"metadata": {"Date": None}} if kind == "svg" else {"dpi": DPI}
    for name in THEMES:
        with figure_style(name) as theme:
            figure = plot(theme)
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, transparent=True, bbox_inches="tight", **settings)
        images[name] = data_url(buffer.getvalue(), kind)
        if kind == "png":  # text is then as large as in an SVG
            width = int.from_bytes(buffer.getvalue()[16:20], "big") * CSS_DPI // DPI
    return ThemedFigure(title, caption, images["light"], images["dark"], warning, width)


def learning_curves(comparison: ComparisonResults) -> ThemedFigure:
    """Render :func:`plot_learning_curves`."""
    caption = "Training error over the last 50 steps, and validation accuracy."
    return render_figure("Learning curves", caption, lambda theme: plot_learning_curves(comparison))


def plot_learning_curves(comparison: ComparisonResults) -> Figure:
    """Plot training error and validation accuracy per epoch, with a line per seed."""
    from matplotlib.ticker import LogFormatter

    figure = new_figure(9, 3.4)
    left, right = figure.subplots(1, 2)
    for number, (name, runs) in enumerate(comparison.runs.items()):
        color = COLORS[number % len(COLORS)]
        for run in runs:
            rows = read_metrics(run.metrics_file)
            train = [row for row in rows if row.split == "train"]
            validation = [row for row in rows if row.split == "validation"]
            label = figure_label(name) if run is runs[0] else None
            errors = [100 * (1 - row.accuracy) for row in train]
            line = "o-" if len(train) == 1 else "-"  # a single point is invisible without a marker
            left.plot([row.epoch for row in train], errors, line, color=color, label=label)
            accuracies = [100 * row.accuracy for row in validation]
            right.plot([row.epoch for row in validation], accuracies, "o-", color=color, label=label)
    left.set(xlabel="epoch", ylabel="training error, %", yscale="log")
    for axis in (left.yaxis.set_major_formatter, left.yaxis.set_minor_formatter):
        axis(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.5)))
    right.set(xlabel="epoch", ylabel="validation accuracy, %")
    for axes in (left, right):
        axes.grid(alpha=0.6)
    right.legend()
    return figure


def confusions(results: dict[str, dict[str, Any]], classes: tuple[str, ...]) -> ThemedFigure:
    """Plot confusion matrices. Correct predictions are not colored, so that the errors stand out."""
    columns = min(3, len(results))
    rows = -(-len(results) // columns)

    def plot(theme: Theme) -> Figure:
        figure = new_figure(3.4 * columns, 3.6 * rows, layout="tight")
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes in grid.flat[len(results) :]:
            axes.set_axis_off()
        for axes, (name, result) in zip(grid.flat, results.items(), strict=False):
            plot_confusion(axes, np.asarray(result["confusion"]), classes, theme)
            axes.set_title(figure_label(name), fontsize=10)
        return figure

    first = next(iter(results.values()))
    return render_figure("Confusion matrices", f"{first['test_images']:,} test images, seed {first['seed']}.", plot)


def reconstructions(name: str, model: Model, images: ImageSet, count: int = 10) -> ThemedFigure:
    """Show test images, and below them the reconstructions from the winning capsule."""
    count = min(count, len(images))
    inputs = crop_to_model(model, images.batch(torch.arange(count)).images)
    with torch.no_grad():
        output = model(inputs)
        drawn = model.reconstruct(output)
    predicted = output.scores.argmax(1).tolist()

    def plot(theme: Theme) -> Figure:
        figure = new_figure(0.8 * count, 1.9)
        axes = figure.subplots(2, count, squeeze=False)
        for column in range(count):
            for row, picture in enumerate((inputs[column], drawn[column])):
                _show(axes[row, column], picture)
            name_below = model.class_names[predicted[column]]
            axes[1, column].set_xlabel(figure_text(name_below), fontsize=9 if len(name_below) < 9 else 6)
        axes[0, 0].set_ylabel("image")
        axes[1, 0].set_ylabel("decoded")
        return figure

    return render_figure(
        f"Reconstructions by {name}",
        "Test images, and the reconstructions from the winning capsule with the predicted class.",
        plot,
    )


def perturbations(name: str, model: Model, images: ImageSet, dimensions: int = 4) -> ThemedFigure:
    """Show a row for each of the dimensions with the strongest effect on the reconstruction."""
    image = crop_to_model(model, images.batch(torch.arange(1)).images)[0]
    drawn = perturb_dimensions(model, image)  # (D, steps, C, H, W)
    chosen = reconstruction_change(drawn).argsort(descending=True)[:dimensions].tolist()
    steps = drawn.shape[1]

    def plot(theme: Theme) -> Figure:
        figure = new_figure(0.8 * steps, 0.85 * dimensions)
        axes = figure.subplots(dimensions, steps, squeeze=False)
        for row, dimension in enumerate(chosen):
            for column in range(steps):
                _show(axes[row, column], drawn[dimension, column])
            axes[row, 0].set_ylabel(f"dim {dimension}", fontsize=9)
        return figure

    caption = (
        f"Reconstructions with one dimension of the winning capsule changed by -0.25 to +0.25, for the {dimensions} "
        "dimensions with the strongest effect."
    )
    return render_figure(f"Perturbed capsule dimensions of {name}", caption, plot)


def _show(axes: Any, image: torch.Tensor) -> None:
    """Show an image (C, H, W) without ticks."""
    axes.imshow(as_rgb(image))
    axes.set(xticks=[], yticks=[])


def robustness_figures(comparison: ComparisonResults) -> list[ThemedFigure]:
    """Plot accuracy against affine changes and epsilon, and show separated overlapping digits, as far as measured."""
    figures = []
    changed = _found(comparison, lambda found: found["tests"].get("affnist"))
    if changed:
        first = next(iter(changed.values()))[0]
        caption = (
            "Accuracy when each image is changed by a single factor; no change is in the middle. The column 'affine' "
            f"is for all factors at once. {first['images']} images: {first['about']}."
        )
        figures.append(render_figure("Affine changes", caption, lambda theme: affine_chart(changed), kind="svg"))
    attacked = _found(comparison, lambda found: found["attacked"])
    if attacked:
        first = next(iter(attacked.values()))[0]
        caption = (
            "Accuracy when an attack may change every pixel by up to epsilon; at 0 the images are clean. "
            f"{first['images']} test images, logits '{first['logits']}'. This is a quick test, not a robustness proof."
        )
        figures.append(
            render_figure(
                "Accuracy under attack",
                caption,
                lambda theme: attack_curves(attacked),
                kind="svg",
                warning=_warning(attacked),
            )
        )
    if _found(comparison, lambda found: found["tests"].get("multimnist")):
        figures += _overlap_figures(comparison)
    return figures


def _found(comparison: ComparisonResults, pick: Callable[[dict[str, Any]], Any]) -> Results:
    """Return one kind of result by label, for the models that have it for every seed."""
    picked = {
        label: [pick(result["robustness"]) for result in results if "robustness" in result]
        for label, results in comparison.results.items()
    }
    return {label: each for label, each in picked.items() if each and all(each)}


def _warning(attacked: Results) -> str:
    """Describe the failed sanity checks of each model; empty if there are none."""
    said = [
        f"{label}: {warned['name']}, {warned['message']}."
        for label, runs in attacked.items()
        for warned in {each["name"]: each for run in runs for each in run["sanity"]}.values()
    ]
    return f"These values are not reliable. {' '.join(said)}" if said else ""


def _overlap_figures(comparison: ComparisonResults) -> list[ThemedFigure]:
    """Show overlapping digits for each model that can reconstruct a single digit."""
    caption = "Two overlapping digits, and the reconstruction of each from its own capsule."
    figures = []
    for label, runs in comparison.runs.items():
        model, data = load(runs[0].path), runs[0].config().data
        if has_conditional_decoder(model):

            def plot(theme: Theme, model: Model = model, data: str = data) -> Figure:
                return overlap_sheet(model, data)

            figures.append(render_figure(f"Separated digits by {label}", caption, plot))
    return figures
