"""What a model says about the pictures of a file or a folder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchcaps.data.base import as_floats, pieces
from torchcaps.data.images import is_picture, picture_form, read_pictures
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model
from torchcaps.pretrained.trained import open_trained
from torchcaps.progress import progress_bar

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
        model = open_trained(model).model
    model.eval()
    size, grey = picture_form(model.image_shape)
    paths, boundary = list_pictures(pictures)
    answers, broken = list[Answer](), dict[Path, str]()
    with progress_bar("predicting", len(paths)) as advance:
        for part in pieces(len(paths), AT_ONCE):
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
