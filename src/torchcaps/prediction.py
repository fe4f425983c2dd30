"""Prediction: what a trained model says about pictures in files, how sure it is, and of which it is least sure."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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

__all__ = ["Answer", "Predictions", "draw_least_sure", "predict", "write_csv"]

# MERGED What a model says about the pictures of a file or a folder.
# MERGED Answers as a CSV file: a line for each picture, a column for each class.
# MERGED The pictures of which a model is least sure, on one sheet, as the model sees them.
AT_ONCE = 256  # pictures that are in memory together


@dataclass(frozen=True)
class Answer:
    """One picture: its path, and the probability of every class, in the order of the model's classes."""

    path: Path
    probabilities: tuple[float, ...]

    @property
    def certainty(self) -> float:
        """The probability of the answer."""
        return max(self.probabilities)


@dataclass(frozen=True)
class Predictions:
    """All answers in the order of the paths; ``broken`` says of other files, a sentence each, why they have none."""

    class_names: tuple[str, ...]
    answers: tuple[Answer, ...]
    broken: dict[Path, str]

    def top(self, answer: Answer, count: int) -> list[tuple[str, float]]:
        """The most probable classes of one picture, the likeliest first."""
        ranked = sorted(zip(answer.probabilities, self.class_names, strict=True), key=lambda pair: -pair[0])
        return [(name, probability) for probability, name in ranked[:count]]

    def least_sure(self, count: int) -> list[Answer]:
        """The pictures whose answers have the lowest probability, the least sure first."""
        return sorted(self.answers, key=lambda answer: answer.certainty)[:count]

    def as_json(self) -> dict[str, Any]:
        """For another program."""
        return {
            "classes": list(self.class_names),
            "pictures": [
                {
                    "path": str(each.path),
                    "answer": self.top(each, 1)[0][0],
                    "probability": each.certainty,
                    "probabilities": dict(zip(self.class_names, each.probabilities, strict=True)),
                }
                for each in self.answers
            ],
            "broken": [{"path": str(path), "problem": problem} for path, problem in self.broken.items()],
        }


def predict(model: Model | str | Path, pictures: str | Path | Iterable[str | Path]) -> Predictions:
    """Ask a model about pictures. They are brought to its size and channels as pictures are for training.

    A probability is the softmax of the model's logits: how likely a class is if the picture shows exactly one of them.
    For a capsule of length s the logit is log s / (1 - s), with s the chance that its class is there (sabour2017).

    Args:
        model: a loaded model, the folder of a run, or the name of shipped weights.
        pictures: a file, a folder (with what is in its subfolders), or paths.
    """
    if not isinstance(model, Model):
        model = load_trained(model).model
    model.eval()
    size, grey = picture_form(model.image_shape)
    paths, boundary = list_pictures(pictures)
    answers, broken = list[Answer](), dict[Path, str]()
    with progress_bar("predicting", len(paths)) as advance:
        for part in chunks(len(paths), AT_ONCE):
            read = read_pictures(paths[part], boundary=boundary, size=size, grey=grey)
            pairs = list(zip(paths[part], read, strict=True))
            good = [(path, pixels) for path, pixels in pairs if isinstance(pixels, Tensor)]
            broken |= {path: problem for path, problem in pairs if isinstance(problem, str)}
            if good:
                found = probabilities(model, torch.stack([pixels for _, pixels in good]))
                answers += [Answer(path, tuple(row)) for (path, _), row in zip(good, found.tolist(), strict=True)]
            advance(part.stop - part.start)
    if not answers:
        raise TorchcapsError(f"no picture could be read; the first: {next(iter(broken.values()))}")
    return Predictions(model.class_names or tuple(map(str, range(model.classes))), tuple(answers), broken)


@torch.no_grad()
def probabilities(model: Model, images: Tensor) -> Tensor:
    """Bytes (B, C, H, W) to the probability of each class (B, classes)."""
    device = next(model.parameters()).device
    found: Tensor = model(as_floats(images).to(device)).logits.softmax(1).cpu()
    return found


def list_pictures(given: str | Path | Iterable[str | Path]) -> tuple[list[Path], Path | None]:
    """The files that are meant, and the folder that links must not lead out of; None where each file was named."""
    if not isinstance(given, str | Path):
        return [Path(each) for each in given], None
    root = Path(given)
    if not root.is_dir():
        if not root.exists():
            raise TorchcapsError(f"{root} is not there: give a picture, or a folder of pictures")
        return [root], None
    inside = (path for path in sorted(root.rglob("*")) if is_picture(path))
    paths = [path for path in inside if not any(part.startswith(".") for part in path.relative_to(root).parts)]
    if not paths:
        raise TorchcapsError(f"{root} holds no pictures: give a folder with PNG, JPEG or similar files")
    return paths, root.resolve()


NUMBER = re.compile(r"-\d+(\.\d*)?([eE][+-]?\d+)?")


def write_csv(predictions: Predictions, target: Path) -> None:
    """Columns path, answer, probability, problem, then each class; of a broken file only path and problem are known."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(["path", "answer", "probability", "problem", *map(cell, predictions.class_names)])
    for each in predictions.answers:
        [(answer, certainty)] = predictions.top(each, 1)
        figures = (f"{value:.6f}" for value in each.probabilities)
        lines.writerow([cell(each.path), cell(answer), f"{certainty:.6f}", "", *figures])
    for path, problem in predictions.broken.items():
        lines.writerow([cell(path), "", "", cell(problem), *("" for _ in predictions.class_names)])
    write_text(target, text.getvalue())


def cell(value: object) -> str:
    """A text that no spreadsheet takes for a formula: it gets an apostrophe, unless it is a number.

    >>> cell("=1+1"), cell("-3.5"), cell("cat")
    ("'=1+1", '-3.5', 'cat')
    """
    text = printable(str(value))
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) and not NUMBER.fullmatch(text) else text


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
    with figure_style():
        figure = Figure(figsize=(1.75 * columns, 2.25 * rows), layout="constrained")
        grid = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axes in grid:
            hide_axes(axes)
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
