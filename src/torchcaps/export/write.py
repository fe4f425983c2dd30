"""From a trained model to a file that needs nothing of this library."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch.export import ExportedProgram

from torchcaps.environment import package_version
from torchcaps.errors import unknown_name
from torchcaps.export.onnx_file import write_onnx
from torchcaps.export.program_file import write_program
from torchcaps.export.traced import Answer, check_answers, trace
from torchcaps.files import atomic_path
from torchcaps.models import Model
from torchcaps.pretrained.trained import describe_input, open_trained
from torchcaps.progress import progress_bar


@dataclass(frozen=True)
class Format:
    """A kind of file: how its name ends, and who writes it."""

    suffix: str
    write: Callable[[ExportedProgram, Path, dict[str, str]], Answer]


FORMATS = {"onnx": Format(".onnx", write_onnx), "torch": Format(".pt2", write_program)}


@dataclass(frozen=True)
class Exported:
    """A file that was written; ``difference`` is the largest one between its scores and PyTorch's."""

    path: Path
    difference: float
    details: dict[str, str]


def export_model(source: str | Path | Model, target: str | Path | None = None, *, to: str = "onnx") -> Exported:
    """Write a model as a file for other programs; its scores were compared with PyTorch's before it is in place.

    Args:
        source: the folder of a run, the name of shipped weights, or a model.
        target: the file; None: ``model.onnx`` in the run's folder, or named as the shipped weights in this one.
        to: ``onnx``, or ``torch`` for a file that ``torch.export.load`` reads.

    The input is ``images`` (batch, channels, height, width), any number of them; the outputs are ``scores`` (batch,
    classes) and, for capsules, ``pose`` (batch, classes, D).
    """
    if to not in FORMATS:
        raise unknown_name("format", to, FORMATS)
    model, details, home = _open(source)
    form = FORMATS[to]
    path = home.with_name(f"{home.name}{form.suffix}") if target is None else Path(target)
    with progress_bar(f"exporting to {path.name}", None), atomic_path(path) as temporary:
        difference = check_answers(model, form.write(trace(model), temporary, details))
    return Exported(path, difference, details)


def _open(source: str | Path | Model) -> tuple[Model, dict[str, str], Path]:
    """A model, what its file will say about it, and where that file lies by default, without the end of its name."""
    if isinstance(source, Model):
        names = source.class_names or tuple(map(str, range(source.classes)))
        return source, _describe(source, type(source).__name__, names), Path("model")
    trained = open_trained(source)
    about = {"data": trained.config.data, "size": trained.config.size}
    details = _describe(trained.model, trained.config.model, trained.config.class_names) | about
    return trained.model, details, Path(source) / "model" if Path(source).is_dir() else Path(trained.name)


def _describe(model: Model, name: str, class_names: tuple[str, ...]) -> dict[str, str]:
    return {
        "model": name,
        "classes": json.dumps(class_names),
        "preprocessing": describe_input(model.image_shape),
        "torchcaps_version": str(package_version("torchcaps")),
    }
