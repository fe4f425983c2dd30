"""Pictures of a comparison. Each is drawn twice, for light and for dark pages."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from torchcaps.analysis import perturb_dimensions
from torchcaps.analysis.perturbation import reconstruction_change
from torchcaps.analysis.style import COLORS, THEMES, Theme, as_rgb, figure_style, figure_text
from torchcaps.compare.job import ComparisonResults
from torchcaps.data import ImageSet
from torchcaps.evaluate.figures import Results, affine_chart, attack_curves, overlap_sheet
from torchcaps.evaluate.overlap import has_conditional_decoder
from torchcaps.html import ThemedFigure, data_url
from torchcaps.models import Model
from torchcaps.train import load, read_metrics
from torchcaps.train.objective import crop_to_model

# MERGED Pictures of how robust the models of a comparison are.
matplotlib.use("agg")


def render_figure(
    title: str, caption: str, paint: Callable[[Theme], Figure], *, kind: str = "png", warning: str = ""
) -> ThemedFigure:
    """Paint a figure in both themes: ``png`` for pictures made of pixels, ``svg`` for lines."""
    images = {}
    settings: dict[str, Any] = {"metadata": {"Date": None}} if kind == "svg" else {"dpi": 144}
    for name in THEMES:
        with figure_style(name) as theme:
            figure = paint(theme)
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, transparent=True, bbox_inches="tight", **settings)
            plt.close(figure)
        images[name] = data_url(buffer.getvalue(), kind)
    return ThemedFigure(title, caption, images["light"], images["dark"], warning)


def learning_curves(comparison: ComparisonResults) -> ThemedFigure:
    """Training loss and validation accuracy against images seen, every seed a line."""

    def paint(theme: Theme) -> Figure:
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
        for number, (name, runs) in enumerate(comparison.runs.items()):
            colour = COLORS[number % len(COLORS)]
            for run in runs:
                lines = read_metrics(run.metrics_file)
                train = [line for line in lines if line.split == "train"]
                held = [line for line in lines if line.split == "validation"]
                label = figure_text(name) if run is runs[0] else None
                left.plot(
                    [line.epoch for line in train],
                    [100 * (1 - line.accuracy) for line in train],
                    color=colour,
                    label=label,
                )
                right.plot(
                    [line.epoch for line in held],
                    [100 * line.accuracy for line in held],
                    "o-",
                    color=colour,
                    label=label,
                )
        left.set(xlabel="epoch", ylabel="training error, %", yscale="log")
        for axis in (left.yaxis.set_major_formatter, left.yaxis.set_minor_formatter):
            axis(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.5)))
        right.set(xlabel="epoch", ylabel="validation accuracy, %")
        for axes in (left, right):
            axes.grid(alpha=0.6)
        right.legend()
        return figure

    return render_figure(
        "Learning curves", "Training error over the last 50 steps, and accuracy on the validation images.", paint
    )


def confusions(results: dict[str, dict[str, Any]], classes: tuple[str, ...]) -> ThemedFigure:
    """Which class was taken for which; the right ones are left out of the colours so that the errors show."""
    columns = min(3, len(results))
    rows = -(-len(results) // columns)

    def paint(theme: Theme) -> Figure:
        figure, grid = plt.subplots(rows, columns, figsize=(3.4 * columns, 3.6 * rows), squeeze=False, layout="tight")
        for axes in grid.flat[len(results) :]:
            axes.set_axis_off()
        for axes, (name, result) in zip(grid.flat, results.items(), strict=False):
            paint_confusion(axes, np.asarray(result["confusion"]), classes, theme)
            axes.set_title(figure_text(name), fontsize=10)
        return figure

    first = next(iter(results.values()))
    return render_figure("Confusions", f"{first['test_images']:,} test images, seed {first['seed']}.", paint)


def paint_confusion(axes: Any, counts: Any, classes: tuple[str, ...], theme: Theme) -> None:
    """One matrix of counts, truth down and answer across."""
    errors = counts * (1 - np.eye(len(counts), dtype=int))
    axes.imshow(errors, cmap=theme["cmap"], alpha=0.85)
    peak = max(1, errors.max())
    for row, column in zip(*np.nonzero(counts), strict=True):
        strength = errors[row, column] / peak
        on_dark = strength > 0.55 if theme is THEMES["light"] else strength < 0.6
        colour = "white" if on_dark else "#1c2430"
        axes.text(column, row, counts[row, column], ha="center", va="center", fontsize=6, color=colour)
    axes.set(xlabel="answer", ylabel="truth")
    names = [figure_text(name) for name in classes]
    axes.set_xticks(range(len(classes)), names, rotation=0 if max(map(len, classes)) < 3 else 60)
    axes.set_yticks(range(len(classes)), names)


def reconstructions(name: str, model: Model, images: ImageSet, count: int = 10) -> ThemedFigure:
    """Test images above, what the model draws from its winning capsule below."""
    count = min(count, len(images))
    pictures = crop_to_model(model, images.batch(torch.arange(count)).images)
    with torch.no_grad():
        output = model(pictures)
        drawn = model.reconstruct(output)
    answers = output.scores.argmax(1).tolist()

    def paint(theme: Theme) -> Figure:
        figure, axes = plt.subplots(2, count, figsize=(0.8 * count, 1.9), squeeze=False)
        for column in range(count):
            for row, picture in enumerate((pictures[column], drawn[column])):
                show(axes[row, column], picture)
            name_below = model.class_names[answers[column]]
            axes[1, column].set_xlabel(figure_text(name_below), fontsize=9 if len(name_below) < 9 else 6)
        axes[0, 0].set_ylabel("image")
        axes[1, 0].set_ylabel("drawn")
        return figure

    return render_figure(
        f"Reconstructions by {name}", "Test images, and the drawing from the winning capsule, named below.", paint
    )


def perturbations(name: str, model: Model, images: ImageSet, dimensions: int = 4) -> ThemedFigure:
    """One row for each of the dimensions that change the drawing most."""
    image = crop_to_model(model, images.batch(torch.arange(1)).images)[0]
    drawn = perturb_dimensions(model, image)  # (D, steps, C, H, W)
    chosen = reconstruction_change(drawn).argsort(descending=True)[:dimensions].tolist()
    steps = drawn.shape[1]

    def paint(theme: Theme) -> Figure:
        figure, axes = plt.subplots(dimensions, steps, figsize=(0.8 * steps, 0.85 * dimensions), squeeze=False)
        for row, dimension in enumerate(chosen):
            for column in range(steps):
                show(axes[row, column], drawn[dimension, column])
            axes[row, 0].set_ylabel(f"dim {dimension}", fontsize=9)
        return figure

    caption = (
        f"One number of the winning capsule moved from -0.25 to +0.25: the {dimensions} that change the drawing most."
    )
    return render_figure(f"What capsule dimensions of {name} hold", caption, paint)


def show(axes: Any, picture: torch.Tensor) -> None:
    """Put an image (C, H, W) into axes without ticks."""
    axes.imshow(as_rgb(picture))
    axes.set(xticks=[], yticks=[])


def robustness_figures(comparison: ComparisonResults) -> list[ThemedFigure]:
    """Accuracy against epsilon and against affine change, and overlaid digits drawn apart: what was measured."""
    pictures = []
    changed = _found(comparison, lambda found: found["tests"].get("affnist"))
    if changed:
        first = next(iter(changed.values()))[0]
        caption = (
            "How much accuracy is left when every image is changed by one factor alone; the middle is no change, and "
            f"the column 'affine' is for all factors at once. {first['images']} images: {first['about']}."
        )
        pictures.append(render_figure("Affine change", caption, lambda theme: affine_chart(changed), kind="svg"))
    attacked = _found(comparison, lambda found: found["attacked"])
    if attacked:
        first = next(iter(attacked.values()))[0]
        caption = (
            "How much accuracy is left when every pixel may be changed by epsilon towards a wrong answer; 0 is the "
            f"images as they are. {first['images']} test images, logits '{first['logits']}': a first look, not a proof."
        )
        pictures.append(
            render_figure(
                "Accuracy under attack",
                caption,
                lambda theme: attack_curves(attacked),
                kind="svg",
                warning=_warning(attacked),
            )
        )
    if _found(comparison, lambda found: found["tests"].get("multimnist")):
        pictures += _apart(comparison)
    return pictures


def _found(comparison: ComparisonResults, pick: Callable[[dict[str, Any]], Any]) -> Results:
    """One kind of result by label, of the models that have it for every seed."""
    picked = {
        label: [pick(result["robustness"]) for result in results if "robustness" in result]
        for label, results in comparison.results.items()
    }
    return {label: each for label, each in picked.items() if each and all(each)}


def _warning(attacked: Results) -> str:
    """What the failed sanity checks say about which model."""
    said = [
        f"{label}: {warned['name']}, {warned['message']}."
        for label, runs in attacked.items()
        for warned in {each["name"]: each for run in runs for each in run["sanity"]}.values()
    ]
    return f"Not to be trusted as it stands. {' '.join(said)}" if said else ""


def _apart(comparison: ComparisonResults) -> list[ThemedFigure]:
    """A sheet of overlaid digits for each model that can draw one digit alone."""
    caption = "Two overlaid digits, and each as the model draws it from its own capsule alone."
    pictures = []
    for label, runs in comparison.runs.items():
        model, data = load(runs[0].path), runs[0].config().data
        if has_conditional_decoder(model):

            def paint(theme: Theme, model: Model = model, data: str = data) -> Figure:
                return overlap_sheet(model, data)

            pictures.append(render_figure(f"Overlaid digits apart, by {label}", caption, paint))
    return pictures
