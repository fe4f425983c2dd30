"""Export models to ONNX and torch.export, verified against PyTorch before a file is put in place."""

from __future__ import annotations

import hashlib
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
from torchcaps.files import atomic_path, cache_folder
from torchcaps.kernels.dispatch import use_kernels
from torchcaps.models import Model, Output
from torchcaps.pretrained.loading import describe_input, load_trained
from torchcaps.progress import progress_bar

__all__ = ["FORMATS", "ExportResult", "OnnxInference", "export_model"]

INPUT = "images"
BATCH = "batch"  # the name of the first axis
OUTPUTS = ("probabilities", "scores", "pose")  # models without capsules have no pose
TOLERANCE = 1e-5  # largest difference between the probabilities and scores of the file and of the model
BATCHES = (1, 3)  # batch sizes on which they are compared
MOST_CACHED = 20  # exported files in the cache directory

Answer = Callable[[Tensor], Tensor]  # images to probabilities and scores, (B, 2 * classes)


class TensorOutputs(nn.Module):
    """A model that returns plain tensors: probabilities, scores and, with capsules, pose.

    Probabilities are those that ``torchcaps predict`` prints: the softmax of the logits.

    Shapes: probabilities and scores (B, classes); pose (B, classes, D).
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        output = self.model(images)
        answers = (output.logits.softmax(1), output.scores)
        # Capsules of sr-capsnet's classes have activations and no pose.
        return answers if output.pose is None or not output.pose.shape[-1] else (*answers, output.pose)


def trace(model: Model) -> ExportedProgram:
    """Trace a model in evaluation mode; the loops of its routing are unrolled.

    Only the plain kernels can be traced. The example has two images, because torch.export specializes on a batch of
    one.
    """
    was_training = model.training
    images: Any = {0: Dim(BATCH, min=1)}
    try:
        with use_kernels("plain"), torch.no_grad():
            return torch.export.export(
                TensorOutputs(model.eval()), (example_images(model, 2),), dynamic_shapes=(images,)
            )
    finally:
        model.train(was_training)


def example_images(model: Model, count: int) -> Tensor:
    """Return random images of the model's shape, the same in every call."""
    device = next(model.parameters()).device
    return torch.rand(count, *model.image_shape, generator=torch.Generator().manual_seed(count)).to(device)


def check_answers(model: Model, answer: Answer) -> float:
    """Return the largest difference between the answers of a model and of an exported file; too large is an error."""
    was_training = model.training
    differences = list[float]()
    try:
        with use_kernels("plain"), torch.no_grad():
            for count in BATCHES:
                images = example_images(model, count)
                wanted = torch.cat(TensorOutputs(model.eval())(images)[:2], 1)
                differences.append((answer(images).to(wanted) - wanted).abs().max().item())
    finally:
        model.train(was_training)
    if not max(differences) <= TOLERANCE:  # also for NaN
        raise TorchcapsError(
            f"the exported probabilities or scores differ from the model's by {max(differences):.1e}, more than "
            f"{TOLERANCE:.0e}: nothing was written"
        )
    return max(differences)


MODULES = ("onnx", "onnxruntime", "onnxscript")
ERRORS_ONLY = 3  # log level of onnxruntime: no warnings about constants


def write_onnx(program: ExportedProgram, target: Path, details: dict[str, str]) -> Answer:
    """Write an ONNX file with a dynamic batch size; return a function that computes its answers."""
    need_extra("export", "an ONNX file", *MODULES)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns that torchvision is not installed
    outputs = OUTPUTS[: len(program.graph_signature.user_outputs)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about PyTorch internals
        exported = torch.onnx.export(program, dynamo=True, verbose=False, input_names=[INPUT], output_names=outputs)
    assert exported is not None  # None only if a file name was given
    name_batch_axis(exported.model.graph)
    exported.model.metadata_props.update(details)
    exported.model.producer_name = "torchcaps"
    exported.save(target, external_data=False)
    session = open_session(target, threads=1)
    return lambda images: torch.cat(
        [torch.from_numpy(each) for each in session.run(OUTPUTS[:2], {INPUT: images.cpu().numpy()})], 1
    )


def name_batch_axis(graph: Any) -> None:
    """Name the first axis of inputs and outputs; the exporter names it after a symbol of its own."""
    for value in (*graph.inputs, *graph.outputs):
        value.shape = type(value.shape)([BATCH, *value.shape.dims[1:]])


def open_session(file: Path, threads: int) -> Any:
    """Open an ONNX file in onnxruntime, on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = ERRORS_ONLY
    return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])


class OnnxInference:
    """Predictions of a model by onnxruntime, on the CPU.

    The exported file is kept in the user's cache directory, under a hash of the weights, because exporting takes
    seconds. The logits are the logarithms of the probabilities.

    Args:
        model: a trained model; later changes of its weights have no effect.
    """

    def __init__(self, model: Model) -> None:
        need_extra("export", "onnxruntime", *MODULES)
        file = cache_folder() / "onnx" / f"{_fingerprint(model)}.onnx"
        try:
            self.session = open_session(file, threads=torch.get_num_threads())
        except Exception:  # not there, or damaged; the types are onnxruntime's
            file.parent.mkdir(parents=True, exist_ok=True)
            with atomic_path(file) as temporary:
                check_answers(model, write_onnx(trace(model), temporary, {}))
            self.session = open_session(file, threads=torch.get_num_threads())
            for old in sorted(file.parent.glob("*.onnx"), key=lambda each: each.stat().st_mtime)[:-MOST_CACHED]:
                old.unlink(missing_ok=True)
        self.names = [each.name for each in self.session.get_outputs()]
        self.check_images = model.check_images

    def __call__(self, images: Tensor) -> Output:
        self.check_images(images)
        arrays = self.session.run(None, {INPUT: images.numpy()})
        found = dict(zip(self.names, map(torch.from_numpy, arrays), strict=True))
        return Output(found["scores"], found["probabilities"].log(), found.get("pose"))


def _fingerprint(model: Model) -> str:
    """Return a hash of what determines the exported file: network, weights and versions."""
    found = hashlib.sha256(repr(model).encode())
    for name, value in model.state_dict().items():
        found.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        found.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    versions = [package_version(name) for name in ("torchcaps", "torch", "onnx")]
    return hashlib.sha256(f"{found.hexdigest()} {versions}".encode()).hexdigest()[:32]


DETAILS = "torchcaps.json"  # name of the metadata, for torch.export.load(extra_files=...)


def write_program(program: ExportedProgram, target: Path, details: dict[str, str]) -> Answer:
    """Write a file for ``torch.export.load``; return a function that computes its answers."""
    with target.open("wb") as stream, warnings.catch_warnings():  # a path would have to end in .pt2
        # A false alarm for channels_last kernels; the file is verified below.
        warnings.filterwarnings("ignore", message="No complete tensor found")
        torch.export.save(program, stream, extra_files={DETAILS: json.dumps(details)})
    with target.open("rb") as stream:
        run = torch.export.load(stream).module()
    return lambda images: torch.cat(run(images)[:2], 1)


@dataclass(frozen=True)
class ExportFormat:
    """A file format: its suffix and the function that writes it."""

    suffix: str
    write: Callable[[ExportedProgram, Path, dict[str, str]], Answer]


FORMATS = {"onnx": ExportFormat(".onnx", write_onnx), "torch": ExportFormat(".pt2", write_program)}


@dataclass(frozen=True)
class ExportResult:
    """An exported file; ``difference`` is the largest difference between its answers and PyTorch's."""

    path: Path
    difference: float
    details: dict[str, str]


def export_model(source: str | Path | Model, target: str | Path | None = None, *, to: str = "onnx") -> ExportResult:
    """Export a model to a file, after comparing its answers with PyTorch's.

    The input of the exported model is ``images`` (batch, channels, height, width) with any batch size; the outputs are
    ``probabilities`` and ``scores`` (batch, classes) and, with capsules, ``pose`` (batch, classes, D).

    Args:
        source: a run directory, the name of pretrained weights, or a model.
        target: the file to write; None: ``model.onnx`` in the run directory, or the name of the weights in the
            current directory.
        to: ``onnx``, or ``torch`` for a file that ``torch.export.load`` reads.
    """
    if to not in FORMATS:
        raise unknown_name("format", to, FORMATS)
    model, details, home = _open(source)
    form = FORMATS[to]
    path = home.with_name(f"{home.name}{form.suffix}") if target is None else Path(target)
    with progress_bar(f"exporting to {path.name}", None), atomic_path(path) as temporary:
        difference = check_answers(model, form.write(trace(model), temporary, details))
    return ExportResult(path, difference, details)


def _open(source: str | Path | Model) -> tuple[Model, dict[str, str], Path]:
    """Return the model, the metadata of its file, and the default path of the file without suffix."""
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
