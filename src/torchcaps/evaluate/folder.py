"""A run on a new folder of labeled images: accuracy, precision and recall, calibration, and the worst mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.analysis.style import as_rgb, figure_style, figure_text, hide_axes, save_figure
from torchcaps.data import TensorImages
from torchcaps.data.base import as_floats, chunks
from torchcaps.data.datasets.image_folder import open_named, own_folder, picture_digests, read_labeled, relocated
from torchcaps.data.io.pictures import picture_form
from torchcaps.environment import describe_environment
from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.evaluate.figures import plot_calibration, plot_confusion
from torchcaps.files import read_json, write_json
from torchcaps.models import Model
from torchcaps.progress import progress_bar
from torchcaps.train import RunFolder, load

BINS = 10  # of equal width, for the calibration
BATCH = 100
SHOWN, COLUMNS = 24, 6  # images of the sheet of mistakes


def open_folder(run: RunFolder, folder: Path) -> tuple[TensorImages, list[str], bool]:
    """Read a folder of labeled images as the run's model takes them, with the run's classes.

    Returns the images, their files, and whether they are the test images of the training folder: if the folder holds
    exactly the images of the training folder, only those held out for testing are used.
    """
    config = run.config()
    size, grey = picture_form(config.image_shape)
    images, files, _ = read_labeled(folder, size=size, grey=grey, fewest_classes=1)
    for name in images.class_names:
        if name not in config.class_names:
            raise unknown_name(f"class of {run.path}", name, config.class_names)
    numbers = torch.tensor([config.class_names.index(name) for name in images.class_names])
    labeled = TensorImages(images.images, numbers[images.labels], config.class_names)
    if own_folder(config.data) is None or not run.dataset_file.is_file():
        return labeled, files, False
    names = [images.class_names[label] for label in images.labels.tolist()]
    now, before = picture_digests(images.images, names, files), read_json(run.dataset_file).get("digests", {})
    if now["order"] != before.get("order"):
        return labeled, files, False
    test = open_named(relocated(config.data, folder).partition(":")[2]).test
    return test, [f"test image {number}" for number in range(len(test))], True


@torch.no_grad()
def class_probabilities(model: Model, images: TensorImages) -> Tensor:
    """Return the softmax of the logits for all images: (N, classes)."""
    found = []
    with progress_bar("evaluating", len(images)) as advance:
        for part in chunks(len(images), BATCH):
            found.append(model(as_floats(images.images[part])).logits.softmax(1))
            advance(part.stop - part.start)
    return torch.cat(found)


def calibration(probabilities: Tensor, labels: Tensor, bins: int = BINS) -> dict[str, Any]:
    r"""Compare the confidence of the predictions with their accuracy, in bins of confidence.

    Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks, 2017, https://arxiv.org/abs/1706.04599.

    .. math:: \mathrm{ECE} = \sum_b \frac{n_b}{n} |\mathrm{accuracy}_b - \mathrm{confidence}_b|

    Shapes: probabilities (N, classes), labels (N,).
    """
    confidence, predicted = probabilities.max(1)
    right = (predicted == labels).double()
    places = (confidence * bins).long().clamp_max(bins - 1)
    rows: list[dict[str, Any]] = []
    for place in range(bins):
        inside = places == place
        count = int(inside.sum())
        rows.append(
            {
                "from": place / bins,
                "to": (place + 1) / bins,
                "images": count,
                "confidence": float(confidence[inside].double().mean()) if count else None,
                "accuracy": float(right[inside].mean()) if count else None,
            }
        )
    error = sum(row["images"] * abs(row["accuracy"] - row["confidence"]) for row in rows if row["images"]) / len(labels)
    return {"expected_calibration_error": error, "bins": rows}


def per_class(confusion: Tensor, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return images, precision and recall of each class; None where there is nothing to divide by.

    Shapes: confusion (classes, classes), true classes in rows.
    """
    rows = []
    for label, name in enumerate(names):
        right, true, predicted = (
            int(each) for each in (confusion[label, label], confusion[label].sum(), confusion[:, label].sum())
        )
        rows.append(
            {
                "class": name,
                "images": true,
                "precision": right / predicted if predicted else None,
                "recall": right / true if true else None,
            }
        )
    return rows


def evaluate_folder(run: RunFolder, folder: Path, target: Path) -> dict[str, Any]:
    """Evaluate a run on a folder of labeled images; write images.json and figures to ``target``, return the result."""
    model, (images, files, is_test) = load(run.path), open_folder(run, folder)
    probabilities = class_probabilities(model, images)
    confidence, predicted = probabilities.max(1)
    names, labels = run.config().class_names, images.labels
    pairs = torch.bincount(labels * len(names) + predicted, minlength=len(names) ** 2)
    confusion = pairs.view(len(names), len(names))
    wrong = (predicted != labels).nonzero().flatten()
    wrong = wrong[confidence[wrong].argsort(descending=True)]
    result: dict[str, Any] = {
        "run": str(run.path),
        "folder": str(folder),
        "held_out_by_the_run": is_test,
        "images": len(labels),
        "accuracy": float((predicted == labels).double().mean()),
        "classes": per_class(confusion, names),
        "confusion": confusion.tolist(),
        "calibration": calibration(probabilities, labels),
        "mistakes": [
            {
                "file": files[index],
                "true": names[int(labels[index])],
                "predicted": names[int(predicted[index])],
                "probability": float(confidence[index]),
            }
            for index in wrong.tolist()
        ],
        "environment": describe_environment(),
    }
    write_json(target / "images.json", result)
    with figure_style() as theme:
        figure = Figure(figsize=(9, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        plot_confusion(left, confusion.numpy(), names, theme)
        left.set_title("images; mistakes are shaded", fontsize="medium")
        plot_calibration(right, result["calibration"])
        save_figure(figure, target / "images.png")
        if len(wrong):
            save_figure(mistake_sheet(images, wrong[:SHOWN], result["mistakes"]), target / "mistakes.png")
    return result


def mistake_sheet(images: TensorImages, chosen: Tensor, mistakes: list[dict[str, Any]]) -> Figure:
    """Show misclassified images, the most confident first, with the predicted and the true class."""
    if not len(chosen):
        raise TorchcapsError("there are no mistakes to show")
    columns = min(COLUMNS, len(chosen))
    rows = -(-len(chosen) // columns)
    figure = Figure(figsize=(1.75 * columns, 2.25 * rows), layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid:
        hide_axes(axes)
    for axes, index, mistake in zip(grid, chosen.tolist(), mistakes, strict=False):
        axes.imshow(as_rgb(as_floats(images.images[index])))
        axes.set_title(figure_text(f"{mistake['predicted']}: {mistake['probability']:.0%}"), fontsize=8)
        names = (f"true: {mistake['true']}", mistake["file"][-28:])
        axes.set_xlabel("\n".join(map(figure_text, names)), fontsize=7)  # a line break would be escaped in a name
    return figure
