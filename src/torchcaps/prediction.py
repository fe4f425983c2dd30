"""Predict the classes of image files, write them as CSV, and draw the least confident predictions."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import torch
from matplotlib.figure import Figure
from torch import Tensor

from torchcaps.analysis.style import as_rgb, figure_style, figure_text, hide_axes, save_figure
from torchcaps.data.base import as_floats, chunks
from torchcaps.data.io.pictures import is_picture, picture_form, read_pictures
from torchcaps.errors import TorchcapsError
from torchcaps.files import printable, write_text
from torchcaps.models import Model
from torchcaps.pretrained.loading import load_trained
from torchcaps.progress import progress_bar
from torchcaps.train.run_images import reconstruction_errors

__all__ = ["Prediction", "Predictions", "draw_least_confident", "predict", "write_csv"]

AT_ONCE = 256  # images in memory


@dataclass(frozen=True)
class Prediction:
    """The prediction for one image: its path, and the probability of each class.

    ``percentile`` is the share of validation images, in percent, whose reconstruction from the winning capsule had a
    smaller error than that of this image; ``unusual`` flags an error above that of 99 % of them: the image is unlike
    those that the network was trained on. Both are None for a network without a decoder.
    """

    path: Path
    probabilities: tuple[float, ...]
    percentile: float | None = None
    unusual: bool | None = None

    @property
    def confidence(self) -> float:
        """The probability of the predicted class."""
        return max(self.probabilities)


@dataclass(frozen=True)
class Predictions:
    """Predictions in the order of the paths; ``broken`` maps files that cannot be read to the reason.

    ``validation_images`` is the number of images whose reconstruction errors ``percentile`` and ``unusual`` refer to.
    """

    class_names: tuple[str, ...]
    answers: tuple[Prediction, ...]
    broken: dict[Path, str]
    validation_images: int | None = None

    def top(self, answer: Prediction, count: int) -> list[tuple[str, float]]:
        """Return the most probable classes of one image with their probabilities."""
        ranked = sorted(zip(answer.probabilities, self.class_names, strict=True), key=lambda pair: -pair[0])
        return [(name, probability) for probability, name in ranked[:count]]

    def least_confident(self, count: int) -> list[Prediction]:
        """Return the predictions with the lowest confidence, lowest first."""
        return sorted(self.answers, key=lambda answer: answer.confidence)[:count]

    def as_json(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON."""
        return {
            "classes": list(self.class_names),
            "pictures": [
                {
                    "path": str(each.path),
                    "answer": self.top(each, 1)[0][0],
                    "probability": each.confidence,
                    "probabilities": dict(zip(self.class_names, each.probabilities, strict=True)),
                    "reconstruction_percentile": each.percentile,
                    "unusual": each.unusual,
                }
                for each in self.answers
            ],
            "broken": [{"path": str(path), "problem": problem} for path, problem in self.broken.items()],
        }


def predict(model: Model | str | Path, pictures: str | Path | Iterable[str | Path]) -> Predictions:
    """Predict the classes of images, which are converted to the size and channels of the model as for training.

    Probabilities are the softmax of the model's logits: they assume that an image shows exactly one class. The logit
    of a capsule of length s is log s / (1 - s), where s is the probability that its class is present (sabour2017).

    Args:
        model: a loaded model, a run directory, or the name of pretrained weights. Only the latter two have the
            reconstruction errors of validation images, for ``percentile`` and ``unusual``.
        pictures: a file, a directory, which is searched recursively, or several of both.
    """
    reference = None
    if not isinstance(model, Model):
        trained = load_trained(model)
        model, reference = trained.model, trained.errors
    model.eval()
    size, grey = picture_form(model.image_shape)
    files = list_pictures(pictures)
    answers, broken = list[Prediction](), dict[Path, str]()
    with progress_bar("predicting", len(files)) as advance:
        for part in chunks(len(files), AT_ONCE):
            pairs: list[tuple[Path, Tensor | str]] = []
            for boundary, group in groupby(files[part], key=lambda file: file.boundary):
                paths = [file.path for file in group]
                pairs += zip(paths, read_pictures(paths, boundary=boundary, size=size, grey=grey), strict=True)
            good = [(path, pixels) for path, pixels in pairs if isinstance(pixels, Tensor)]
            broken |= {path: problem for path, problem in pairs if isinstance(problem, str)}
            if good:
                found, errors = probabilities(model, torch.stack([pixels for _, pixels in good]))
                for number, (path, _) in enumerate(good):
                    answer = Prediction(path, tuple(found[number].tolist()))
                    if reference is not None and errors is not None:
                        error = float(errors[number])
                        answer = replace(
                            answer, percentile=reference.percentile(error), unusual=reference.is_unusual(error)
                        )
                    answers.append(answer)
            advance(part.stop - part.start)
    if not answers:
        raise TorchcapsError(f"no image could be read; the first error: {next(iter(broken.values()))}")
    names = model.class_names or tuple(map(str, range(model.classes)))
    return Predictions(names, tuple(answers), broken, None if reference is None else reference.images)


@torch.no_grad()
def probabilities(model: Model, images: Tensor) -> tuple[Tensor, Tensor | None]:
    """Compute the probability of each class (B, classes) and the reconstruction error (B,) of images as bytes."""
    pixels = as_floats(images).to(next(model.parameters()).device)
    output = model(pixels)
    return output.logits.softmax(1).cpu(), reconstruction_errors(model, pixels, output)


class PictureFile(NamedTuple):
    """An image file, and the directory that it must not leave as a link; None if the file was given by name."""

    path: Path
    boundary: Path | None


def list_pictures(given: str | Path | Iterable[str | Path]) -> list[PictureFile]:
    """Return the image files that were given, and those in directories that were given."""
    if not isinstance(given, str | Path):
        paths = [Path(each) for each in given]
        if len(paths) != 1:  # one of several that is missing is reported and skipped
            return [
                file for each in paths for file in (list_pictures(each) if each.is_dir() else [PictureFile(each, None)])
            ]
        given = paths[0]
    root = Path(given)
    if not root.is_dir():
        if not root.exists():
            raise TorchcapsError(f"{root} does not exist: give an image file, or a directory of images")
        return [PictureFile(root, None)]
    inside = (path for path in sorted(root.rglob("*")) if is_picture(path))
    paths = [path for path in inside if not any(part.startswith(".") for part in path.relative_to(root).parts)]
    if not paths:
        raise TorchcapsError(f"{root} has no images: give a directory with PNG, JPEG or similar files")
    return [PictureFile(path, root.resolve()) for path in paths]


NUMBER = re.compile(r"-\d+(\.\d*)?([eE][+-]?\d+)?")


def write_csv(predictions: Predictions, target: Path) -> None:
    """Write a CSV file: path, answer, probability, reconstruction percentile, unusual, problem, and each class."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(
        [
            "path",
            "answer",
            "probability",
            "reconstruction_percentile",
            "unusual",
            "problem",
            *map(csv_cell, predictions.class_names),
        ]
    )
    for each in predictions.answers:
        [(answer, confidence)] = predictions.top(each, 1)
        figures = (f"{value:.6f}" for value in each.probabilities)
        trust = [
            "" if each.percentile is None else f"{each.percentile:.1f}",
            "" if each.unusual is None else each.unusual,
        ]
        lines.writerow([csv_cell(each.path), csv_cell(answer), f"{confidence:.6f}", *trust, "", *figures])
    for path, problem in predictions.broken.items():
        lines.writerow([csv_cell(path), "", "", "", "", csv_cell(problem), *("" for _ in predictions.class_names)])
    write_text(target, text.getvalue())


def csv_cell(value: object) -> str:
    """Escape a value that a spreadsheet would take for a formula with an apostrophe.

    >>> csv_cell("=1+1"), csv_cell("-3.5"), csv_cell("cat")
    ("'=1+1", '-3.5', 'cat')
    """
    text = printable(str(value))
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) and not NUMBER.fullmatch(text) else text


SHOWN, COLUMNS = 24, 6
LONGEST = 24  # characters of a name below an image


def draw_least_confident(model: Model, predictions: Predictions, target: Path, *, count: int = SHOWN) -> int:
    """Draw the ``count`` least confident predictions as a PNG file; return how many were drawn."""
    size, grey = picture_form(model.image_shape)
    chosen = predictions.least_confident(count)
    read = read_pictures([each.path for each in chosen], boundary=None, size=size, grey=grey)
    pairs = [(each, pixels) for each, pixels in zip(chosen, read, strict=True) if isinstance(pixels, Tensor)]
    columns = min(COLUMNS, len(pairs))
    rows = -(-len(pairs) // columns)
    with figure_style():
        figure = Figure(figsize=(1.75 * columns, 2.25 * rows), layout="constrained")
        grid = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axes in grid:
            hide_axes(axes)
        for axes, (answer, pixels) in zip(grid, pairs, strict=False):
            axes.imshow(as_rgb(as_floats(pixels)))
            lines = [f"{shorten(name)}: {share:.0%}" for name, share in predictions.top(answer, 2)]
            axes.set_title("\n".join(map(figure_text, lines)), fontsize=8)
            below = shorten(f"{answer.path.parent.name}/{answer.path.name}")
            axes.set_xlabel(figure_text(below), fontsize=7)
        save_figure(figure, target)
    return len(pairs)


def shorten(name: str) -> str:
    """Shorten a long name in the middle.

    >>> shorten("holiday-photograph-0042.jpeg")
    'holiday-pho…ph-0042.jpeg'
    """
    if len(name) <= LONGEST:
        return name
    half = LONGEST // 2
    return f"{name[: half - 1]}…{name[-half:]}"
