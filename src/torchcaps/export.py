"""Models as files for other programs: ONNX and torch.export, checked against PyTorch before they are in place."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from torchcaps.environment import package_version
from torchcaps.errors import TorchcapsError, need_extra, unknown_name
from torchcaps.files import atomic_path
from torchcaps.kernels.dispatch import use_kernels
from torchcaps.models import Model
from torchcaps.pretrained.loading import describe_input, load_trained
from torchcaps.progress import progress_bar

__all__ = ["FORMATS", "Exported", "export_model"]

# MERGED A model as a graph, for any number of images, and how far a graph's answers are from the model'
# MERGED A traced model as an ONNX file, and its answers by onnxruntime.
# MERGED A traced model as a file of torch.export, for programs that have PyTorch but not this library.
# MERGED From a trained model to a file that needs nothing of this library.
INPUT = "images"
OUTPUTS = ("scores", "pose")  # a model without capsules has no pose
TOLERANCE = 1e-5  # between the scores of the file and of the model
BATCHES = (1, 3)  # how many images the answers are compared on

Answer = Callable[[Tensor], Tensor]


class Answers(nn.Module):
    """A model that gives plain tensors: scores (B, classes) and, where there are capsules, pose (B, classes, D)."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        output = self.model(images)
        return (output.scores,) if output.pose is None else (output.scores, output.pose)


def trace(model: Model) -> ExportedProgram:
    """The graph of a model in evaluation mode, with the loops of its routing written out.

    Only the plain definitions become part of it: a graph cannot hold compiled loops. The example has two images,
    since one would be taken for the only number there is.
    """
    was_training = model.training
    images: Any = {0: Dim("batch", min=1)}
    try:
        with use_kernels("plain"), torch.no_grad():
            return torch.export.export(Answers(model.eval()), (some_images(model, 2),), dynamic_shapes=(images,))
    finally:
        model.train(was_training)


def some_images(model: Model, count: int) -> Tensor:
    """Random pixels of the model's shape, the same each time."""
    device = next(model.parameters()).device
    return torch.rand(count, *model.image_shape, generator=torch.Generator().manual_seed(count)).to(device)


def check_answers(model: Model, answer: Answer) -> float:
    """The largest difference of scores between the model and a file's answer; an error if it is too large."""
    was_training = model.training
    differences = list[float]()
    try:
        with use_kernels("plain"), torch.no_grad():
            for count in BATCHES:
                images = some_images(model, count)
                wanted = model.eval()(images).scores
                differences.append((answer(images).to(wanted) - wanted).abs().max().item())
    finally:
        model.train(was_training)
    if not max(differences) <= TOLERANCE:  # also where it is no number
        raise TorchcapsError(
            f"the exported scores differ from the model's by {max(differences):.1e}, more than {TOLERANCE:.0e}: "
            "nothing was written"
        )
    return max(differences)


MODULES = ("onnx", "onnxruntime", "onnxscript")
ERRORS_ONLY = 3  # a level of onnxruntime: what it thinks of a constant helps nobody


def write_onnx(program: ExportedProgram, target: Path, details: dict[str, str]) -> Answer:
    """Write one ONNX file with a dynamic batch; its answers come back for checking."""
    need_extra("export", "an ONNX file", *MODULES)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # torchvision, which nothing here needs, is not there
    outputs = OUTPUTS[: len(program.graph_signature.user_outputs)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of PyTorch about itself
        exported = torch.onnx.export(program, dynamo=True, verbose=False, input_names=[INPUT], output_names=outputs)
    assert exported is not None  # None comes only where a file was named
    exported.model.metadata_props.update(details)
    exported.model.producer_name = "torchcaps"
    exported.save(target, external_data=False)
    session = open_session(target, threads=1)
    return lambda images: torch.from_numpy(session.run(["scores"], {INPUT: images.cpu().numpy()})[0])


def open_session(file: Path, threads: int) -> Any:
    """onnxruntime with a file, on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = ERRORS_ONLY
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


DETAILS = "torchcaps.json"  # the name of what the file says about itself, for torch.export.load(extra_files=...)


def write_program(program: ExportedProgram, target: Path, details: dict[str, str]) -> Answer:
    """Write a file that ``torch.export.load`` reads; its answers, read back from it, come back for checking."""
    with target.open("wb") as stream, warnings.catch_warnings():  # by name, only names that end in .pt2 are taken
        # A kernel with its channels side by side is complete, whatever PyTorch thinks: it is read back below.
        warnings.filterwarnings("ignore", message="No complete tensor found")
        torch.export.save(program, stream, extra_files={DETAILS: json.dumps(details)})
    with target.open("rb") as stream:
        run = torch.export.load(stream).module()
    return lambda images: run(images)[0]


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
    trained = load_trained(source)
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
