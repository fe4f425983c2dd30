"""``torchcaps.fit``: train any model on any images from Python, without registered names."""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from torch import Tensor, nn

from torchcaps.data import ImageSet
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model, Output
from torchcaps.train.callbacks import Callback
from torchcaps.train.checkpoint import load_weights
from torchcaps.train.config import PYTHON, RunConfig, check_names, validate_config
from torchcaps.train.distributed import find_world
from torchcaps.train.loop import run_training, training_context
from torchcaps.train.metrics import MetricRow, read_metrics
from torchcaps.train.run_folder import RunFolder, new_run
from torchcaps.train.splits import Fingerprint

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FitResult:
    """The outcome of :func:`fit`: one row per validation and every 50 steps, the best accuracy, and its step."""

    history: tuple[MetricRow, ...]
    best_accuracy: float  # on the validation images
    best_step: int
    steps: int
    seconds: float  # spent in training steps
    path: Path | None  # of the run directory


class ModuleAdapter(Model):
    """A plain ``nn.Module`` as a :class:`Model`. It returns an :class:`Output`, or logits (B, classes)."""

    def __init__(self, module: nn.Module, image_shape: tuple[int, int, int], classes: int) -> None:
        super().__init__(image_shape, classes)
        self.module = module

    def classify(self, images: Tensor) -> Output:
        found = self.module(images)
        got = type(found).__name__
        if isinstance(found, Tensor):
            found = Output(found.softmax(-1), found)
        scores, logits = getattr(found, "scores", None), getattr(found, "logits", None)
        shapes = [tuple(each.shape) for each in (scores, logits) if isinstance(each, Tensor)]
        wanted = (len(images), self.classes)
        if shapes != [wanted, wanted]:
            raise TorchcapsError(
                f"{type(self.module).__name__} should return logits {wanted}, or a torchcaps.Output whose scores and "
                f"logits have this shape, got {got} with the shapes {shapes}"
            )
        return cast(Output, found)


def fit(
    model: nn.Module,
    train_set: ImageSet,
    val_set: ImageSet,
    *,
    epochs: int = 5,
    batch_size: int = 32,
    loss: str = "margin",
    optimizer: str = "adam",
    learning_rate: float = 1e-3,
    seed: int = 0,
    device: str = "auto",
    out: str | Path | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> FitResult:
    """Train a model in place; it ends in evaluation mode with the weights that were best on the validation images.

    This is the loop of ``torchcaps train``, with its validation, checkpoints and metrics. A run directory written with
    ``out`` cannot be resumed or evaluated from the command line, which can build only registered models: call ``fit``
    again with the same model, images, settings and ``out`` to resume it.

    Args:
        model: a :class:`torchcaps.Model`, or an ``nn.Module`` from images (B, C, H, W) in [0, 1] to a
            :class:`torchcaps.Output` or to logits (B, classes).
        train_set: images to train on, see :meth:`torchcaps.data.ImageSet.from_dataset`.
        val_set: images that select the best weights; not the test set.
        epochs, batch_size, loss, optimizer, learning_rate, seed, device: as options of ``torchcaps train``.
        out: directory for checkpoints, metrics and TensorBoard events; None: nothing is kept.
        should_stop: called after every step; once it returns True, training stops as after Ctrl-C.
        callbacks: observers of the training, see :class:`torchcaps.train.Callback`.
        settings: further settings of :class:`torchcaps.train.RunConfig`: ``steps``, ``schedule``, ``augmentation``,
            ``stop_at_accuracy``, ``clip_norm``, ``weight_decay``, ``reconstruction_weight``, ``precision``,
            ``save_minutes`` and others. A ``one-cycle`` schedule contains the learning rate, which replaces
            ``learning_rate``.
    """
    _check_sets(model, train_set, val_set, augmented=bool(settings.get("augmentation")))
    values: dict[str, Any] = {
        "model": f"{PYTHON}:{type(model).__name__}",
        "data": PYTHON,
        "image_shape": model.image_shape if isinstance(model, Model) else train_set.shape,
        "class_names": train_set.class_names,
        "augmentation": "",
        "reconstruction": "sum",
        "reconstruction_weight": 0.0,
        "schedule": "constant",
        "epochs": epochs,
        "batch_size": batch_size,
        "loss": loss,
        "optimizer": optimizer,
        "learning_rate": learning_rate,
        "seed": seed,
        "device": device,
    }
    config = validate_config(values | settings)
    check_names(config)
    if find_world(config).processes > 1:
        raise TorchcapsError(
            "torchcaps.fit trains in one process: to train in several, register the model and use 'torchcaps train'"
        )
    adapted = model if isinstance(model, Model) else ModuleAdapter(model, config.image_shape, len(config.class_names))
    fingerprint = Fingerprint(config.class_names, {"train": len(train_set), "validation": len(val_set)})
    with contextlib.ExitStack() as stack:
        path = Path(out or stack.enter_context(tempfile.TemporaryDirectory(prefix="torchcaps-")))
        run = _open_or_create(config, path, fingerprint)
        if out:
            log.warning(
                "%s cannot be resumed from the command line: call torchcaps.fit again with out='%s'", path, path
            )
        with training_context(run, config, fingerprint) as (context, forms):
            progress = run_training(
                run,
                config,
                adapted,
                train_set,
                val_set,
                context,
                forms,
                should_stop,
                callbacks,
                tensorboard=out is not None,
            )
        load_weights(run.best, adapted)
        history = tuple(read_metrics(run.metrics_file))
    model.eval()
    if isinstance(model, Model):
        model.class_names = config.class_names
    return FitResult(
        history, progress.best_accuracy, progress.best_step, progress.step, progress.seconds, path if out else None
    )


def _check_sets(model: nn.Module, train_set: ImageSet, val_set: ImageSet, *, augmented: bool) -> None:
    for name, images in (("train_set", train_set), ("val_set", val_set)):
        if not isinstance(images, ImageSet):
            raise TorchcapsError(
                f"{name} should be an ImageSet, got {type(images).__name__}: wrap a torch Dataset with "
                "torchcaps.data.ImageSet.from_dataset"
            )
        if not len(images):
            raise TorchcapsError(f"{name} has no images: at least one is needed")
    if train_set.class_names != val_set.class_names:
        raise TorchcapsError(
            f"train_set has the classes {train_set.class_names}, val_set {val_set.class_names}: they must be the same"
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise TorchcapsError(f"{type(model).__name__} has no parameters to train")
    if not isinstance(model, Model):
        return
    if model.classes != len(train_set.class_names):
        raise TorchcapsError(
            f"{type(model).__name__} was built for {model.classes} classes, train_set has {len(train_set.class_names)}"
        )
    if train_set.shape != model.image_shape and not augmented:  # an augmentation may crop
        raise TorchcapsError(
            f"{type(model).__name__} was built for images {model.image_shape}, train_set has {train_set.shape}"
        )


def _open_or_create(config: RunConfig, path: Path, fingerprint: Fingerprint) -> RunFolder:
    run = RunFolder(path)
    if not run.config_file.is_file():
        return new_run(config, path, fingerprint)
    run.check_inside()
    if run.config() != config:
        raise TorchcapsError(f"{path} holds a run with other settings: choose another directory, or remove it")
    return run
