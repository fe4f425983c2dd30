"""Models of the service: loading them, their description, and their test images."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import torch

from torchcaps.analysis.perturbation import RANGES, default_range
from torchcaps.data import TensorImages, datasets, load_dataset
from torchcaps.data.base import as_floats
from torchcaps.data.datasets.image_folder import FAMILY, parse_name
from torchcaps.demo.images import encode_images
from torchcaps.demo.schemas import ModelInfo, SampleImages
from torchcaps.errors import TorchcapsError
from torchcaps.kernels.dispatch import use_kernels
from torchcaps.layers import CapsuleLayer
from torchcaps.models import FastInference, Model, models
from torchcaps.pretrained import Card, list_pretrained, load_samples
from torchcaps.pretrained.loading import ROOT, load_pretrained, open_trained, read_card
from torchcaps.train import RunConfig, RunFolder, load
from torchcaps.train.run_images import ErrorReference, read_error_reference, read_samples

SAMPLES = 40


@dataclass(frozen=True)
class ServedModel:
    """A model with its name in the service and its training configuration."""

    name: str
    model: Model
    config: RunConfig
    test_accuracy: float | None = None
    may_read_images: bool = False  # whether the folder of images in its configuration may be read
    kept: TensorImages | None = None  # test images in the run directory
    errors: ErrorReference | None = None  # reconstruction errors of validation images

    @cached_property
    def predict(self) -> FastInference:
        """Predictions of the model, with less overhead for single images."""
        return FastInference(self.model)

    @property
    def runtime(self) -> Literal["pytorch", "onnxruntime"]:
        """What computes predictions of single images."""
        return "onnxruntime" if self.predict.accepted else "pytorch"

    @cached_property
    def info(self) -> ModelInfo:
        """The public description of the model."""
        # Without compiled kernels, so that the service starts without waiting for a compiler.
        with torch.no_grad(), use_kernels("plain"):
            pose = self.model(torch.zeros(1, *self.model.image_shape)).pose
        size = None if pose is None else pose.shape[2]
        return ModelInfo(
            name=self.name,
            model=self.config.model,
            size=self.config.size,
            data=public_name(self.config.data),
            image_shape=list(self.model.image_shape),
            class_names=list(self.config.class_names),
            labels_per_image=labels_per_image(self.config.data),
            parameters=sum(parameter.numel() for parameter in self.model.parameters()),
            test_accuracy=self.test_accuracy,
            pose_size=size,
            routes=any(isinstance(module, CapsuleLayer) for module in self.model.modules()),
            draws=self.model.decoder is not None and pose is not None,
            reach=self._reach(size or 1),
            samples=self.config.data in datasets or self.may_read_images or self.kept is not None,
            runtime=self.runtime,
        )

    def _reach(self, size: int) -> float:
        """Return the perturbation range of the model's paper, or else that of sabour2017."""
        return RANGES[default_range(self.model, models.get(self.config.model).paper)].for_size(size)[0]

    @cached_property
    def samples(self) -> SampleImages:
        """Some test images, from the package or from the dataset itself.

        The configuration may come from someone else: a folder that it names is only read if the user named it too.
        """
        shipped = load_samples(self.config.data)
        if shipped is not None:
            images, labels = as_floats(shipped.images), shipped.labels
        elif self.kept is not None:
            images, labels = as_floats(self.kept.images), self.kept.labels
        elif self.config.data not in datasets and not self.may_read_images:
            raise TorchcapsError(
                f"the test images of '{self.name}' are not shown: if it was trained on your own images, start the "
                "service with --images FOLDER"
            )
        else:
            whole = load_dataset(self.config.data, "test")
            batch = whole.batch(torch.arange(min(SAMPLES, len(whole))))
            images, labels = batch.images, batch.labels
        return SampleImages(images=encode_images(images), labels=labels.view(len(labels), -1).tolist())


def labels_per_image(data: str) -> int:
    """Return the number of labels per image of a dataset; one if the dataset is unknown."""
    return datasets.get(data).labels_per_image if data in datasets else 1


def public_name(data: str) -> str:
    """Return the name of a dataset without any path of this machine."""
    return data if data in datasets else "own images" if data.partition(":")[0] == FAMILY else "unknown"


def load_pretrained_models() -> list[ServedModel]:
    """Load all pretrained models of the package, CapsNet first and plain networks last."""
    cards = sorted(list_pretrained(), key=lambda card: (card.model != "capsnet", not models.get(card.model).capsules))
    return [_open_card(card) for card in cards]


def load_run_models(paths: Sequence[str | Path], images: Iterable[Path] = ()) -> list[ServedModel]:
    """Load the models of run directories, each named after its directory, or pretrained models by name.

    Args:
        paths: run directories, possibly made by someone else, or names of pretrained weights.
        images: image folders or CSV files that may be shown as test images of the runs that were trained on them.
    """
    runs = [open_trained(path) for path in paths]
    names = [re.sub(r"[^A-Za-z0-9._-]", "-", run.path.resolve().name)[-100:] for run in runs]
    for name in names:
        if names.count(name) > 1:
            raise TorchcapsError(f"two run directories are called '{name}': rename one of them")
    allowed = {path.resolve() for path in images}
    sources = [_image_source(run.config()) if allowed else None for run in runs]
    for path in allowed.difference(sources):
        raise TorchcapsError(f"none of the runs was trained on the images in {path}: leave out --images")
    opened = zip(runs, names, sources, strict=True)
    return [_open_run(run, name, may_read_images=source in allowed) for run, name, source in opened]


def _image_source(config: RunConfig) -> Path | None:
    """Return the image folder or CSV file in the configuration, without reading it."""
    family, _, text = config.data.partition(":")
    if family != FAMILY:
        return None
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # not a valid path, or a symlink loop
        return Path(parse_name(text)[0]).resolve()
    return None


def _open_card(card: Card) -> ServedModel:
    folder = RunFolder(ROOT / card.name)
    errors = read_error_reference(folder)
    return ServedModel(card.name, load_pretrained(card), folder.config(), card.test_accuracy, errors=errors)


def _open_run(run: RunFolder, name: str, *, may_read_images: bool) -> ServedModel:
    if run.path.parent == ROOT:
        return _open_card(read_card(run.path / "card.json"))
    accuracy = run.result().get("test_accuracy") if run.result_file.is_file() else None
    kept, errors = read_samples(run), read_error_reference(run)
    return ServedModel(name, load(run.path), run.config(), accuracy, may_read_images, kept, errors)
