"""Fine-tuning: start a network for other classes or images with the weights of a trained one."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.models import Model
from torchcaps.pretrained.loading import TrainedModel
from torchcaps.train import RunConfig, RunFolder
from torchcaps.train.checkpoint import save_weights
from torchcaps.train.config import validate_config

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TransferReport:
    """Names of the weights that were kept, and of the reinitialized ones: for the classes, and of another shape."""

    kept: tuple[str, ...]
    for_classes: tuple[str, ...]
    misfits: tuple[str, ...]

    def describe(self, source: str) -> str:
        """Say in a sentence what was kept and what was reinitialized."""
        new = []
        if self.for_classes:
            new.append(f"{len(self.for_classes)} that depend on the classes ({_some(self.for_classes)})")
        if self.misfits:
            new.append(f"{len(self.misfits)} of another shape ({_some(self.misfits)})")
        if not new:
            return f"all {len(self.kept)} weights of {source} are kept, because the classes are the same"
        return f"{len(self.kept)} weights of {source} are kept; reinitialized: {' and '.join(new)}"


def _some(names: tuple[str, ...], most: int = 3) -> str:
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def transfer_weights(source: TrainedModel, config: RunConfig) -> tuple[Model, TransferReport]:
    """Build the model of a config and copy what fits from a trained model.

    Weights whose shape depends on the number of classes, as in the class capsules and the decoder's first layer, are
    reinitialized unless both networks have the same classes. So are weights of another shape.
    """
    model = config.build_model()
    dependent = set() if config.class_names == source.config.class_names else class_dependent(config)
    old, new = source.model.state_dict(), model.state_dict()
    kept: dict[str, Tensor] = {}
    misfits = []
    for name, value in new.items():
        if name in dependent:
            continue
        if name in old and old[name].shape == value.shape:
            kept[name] = old[name]
        else:
            misfits.append(name)
    if not any(name in kept for name, _ in model.named_parameters()):
        raise TorchcapsError(
            f"no weight of {source.name} ({source.config.model}, images {source.config.image_shape}) fits "
            f"{config.model} for images {config.image_shape}: use the same model, size and image size"
        )
    model.load_state_dict(new | kept)
    return model, TransferReport(tuple(kept), tuple(name for name in new if name in dependent), tuple(misfits))


def class_dependent(config: RunConfig) -> set[str]:
    """Return the names of the weights whose shape depends on the number of classes."""
    one_more = config.model_copy(update={"class_names": (*config.class_names, "one more")})
    shapes, others = config.weight_shapes(), one_more.weight_shapes()
    return {name for name, shape in shapes.items() if others.get(name) != shape}


def start_from(run: RunFolder, source: TrainedModel) -> TransferReport:
    """Write the weights with which a new run starts to its directory; a resumed run needs nothing else."""
    config = run.config()
    torch.manual_seed(config.seed)
    model, transfer = transfer_weights(source, config)
    save_weights(run.initial, model)
    return transfer


def for_other_classes(source: TrainedModel, classes: int) -> Model:
    """Return a trained model for another number of classes, in evaluation mode, with new class capsules."""
    names = tuple(map(str, range(classes)))
    config = validate_config(source.config.model_dump() | {"class_names": names})
    model, transfer = transfer_weights(source, config)
    log.warning("%s. Train the model before you use it", transfer.describe(source.name))
    return model.eval()


def settings_like(source: TrainedModel) -> dict[str, Any]:
    """Return the settings of a run that continues from this model: model, size and options."""
    return {"model": source.config.model, "size": source.config.size, "options": dict(source.config.options)}
