"""Generalization to novel viewpoints: objects seen from viewpoints that are not in the training set.

hinton2018, section 5.1 and Table 2: trained on a third of the azimuths or elevations, tested on the others. A better
model is better on familiar viewpoints too, so models are compared at the same familiar error: the training of the
capsule model stops where its error on familiar viewpoints equals the baseline's (:mod:`torchcaps.evaluate.clean`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchcaps.attacks.base import predict_labels
from torchcaps.attacks.model_wrapper import frozen_eval
from torchcaps.data import ImageSet, datasets, load_dataset
from torchcaps.data.base import chunks
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model
from torchcaps.progress import progress_bar
from torchcaps.train.objective import crop_to_model

FAMILIAR = "familiar"  # a split that only viewpoint datasets have
BATCH = 250


def check_viewpoints(data: str) -> None:
    """Refuse a dataset that does not separate familiar from novel viewpoints."""
    if FAMILIAR not in datasets.get(data).splits:
        known = [record.name for record in datasets if FAMILIAR in record.splits]
        raise TorchcapsError(
            f"the viewpoint test needs a model trained on familiar viewpoints only, which {data} does not separate: "
            f"train on one of {', '.join(known)}"
        )


def viewpoint_sets(data: str) -> tuple[ImageSet, ImageSet, str]:
    """Return test images from familiar and from novel viewpoints, and the name of the factor that differs."""
    check_viewpoints(data)
    return load_dataset(data, FAMILIAR), load_dataset(data, "test"), data.rpartition("-")[2]


def measure_viewpoints(
    model: Model, familiar: ImageSet, novel: ImageSet, factor: str, *, images_used: int | None = None
) -> dict[str, Any]:
    """Measure the error on familiar and on novel viewpoints, and the accuracy at each viewpoint."""
    result: dict[str, Any] = {"factor": factor, "by_degree": {}}
    for name, images in ((FAMILIAR, familiar), ("novel", novel)):
        correct, degrees = _classify(model, images, factor, images_used)
        result[f"{name}_images"] = len(correct)
        result[f"{name}_error"] = 1 - correct.double().mean().item()
        result["by_degree"][name] = {
            str(int(degree)): correct[degrees == degree].double().mean().item() for degree in degrees.unique()
        }
    return result


def _classify(model: Model, images: ImageSet, factor: str, count: int | None) -> tuple[Tensor, Tensor]:
    """Return which images are classified correctly, and their viewpoints in degrees: (N,) and (N,)."""
    used = len(images) if count is None else min(count, len(images))
    device = next(model.parameters()).device
    correct, degrees = [], []
    with frozen_eval(model, seed=0), progress_bar(factor, used) as advance:
        for part in chunks(used, BATCH):
            batch = images.batch(torch.arange(part.start, part.stop))
            if factor not in batch.factors:
                raise TorchcapsError(f"these images have no {factor}, only {', '.join(batch.factors) or 'labels'}")
            predictions = predict_labels(model, crop_to_model(model, batch.images).to(device)).cpu()
            correct.append(predictions == batch.labels)
            degrees.append(batch.factors[factor])
            advance(len(predictions))
    return torch.cat(correct), torch.cat(degrees)
