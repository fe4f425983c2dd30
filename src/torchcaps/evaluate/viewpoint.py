"""Viewpoint: things seen from sides that training never showed.

hinton2018, section 5.2 and Table 2: trained on a third of the azimuths or elevations, tested on the others. A better
model is better from familiar sides too, so figures are compared at the same familiar error: the capsule model is
stopped where its error from familiar sides equals the baseline's (:mod:`torchcaps.evaluate.clean`).
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

FAMILIAR = "familiar"  # the split that viewpoint datasets have and others have not
AT_ONCE = 250


def check_viewpoints(data: str) -> None:
    """Refuse a dataset that does not keep familiar sides apart from novel ones."""
    if FAMILIAR not in datasets.get(data).splits:
        known = [record.name for record in datasets if FAMILIAR in record.splits]
        raise TorchcapsError(
            f"novel viewpoints need a model trained on familiar ones alone, which {data} does not set apart: "
            f"train on one of {', '.join(known)}"
        )


def viewpoint_sets(data: str) -> tuple[ImageSet, ImageSet, str]:
    """Test toys from familiar sides and from novel ones, and the factor by which they differ."""
    check_viewpoints(data)
    return load_dataset(data, FAMILIAR), load_dataset(data, "test"), data.rpartition("-")[2]


def measure_viewpoints(
    model: Model, familiar: ImageSet, novel: ImageSet, factor: str, *, images_used: int | None = None
) -> dict[str, Any]:
    """Errors from familiar and from novel sides, and the accuracy from each side by itself."""
    result: dict[str, Any] = {"factor": factor, "by_degree": {}}
    for name, images in ((FAMILIAR, familiar), ("novel", novel)):
        right, degrees = _answers(model, images, factor, images_used)
        result[f"{name}_images"] = len(right)
        result[f"{name}_error"] = 1 - right.double().mean().item()
        result["by_degree"][name] = {
            str(int(degree)): right[degrees == degree].double().mean().item() for degree in degrees.unique()
        }
    return result


def _answers(model: Model, images: ImageSet, factor: str, count: int | None) -> tuple[Tensor, Tensor]:
    """Which images are right, and from where they were seen: (N,) and (N,)."""
    used = len(images) if count is None else min(count, len(images))
    device = next(model.parameters()).device
    right, degrees = [], []
    with frozen_eval(model, seed=0), progress_bar(factor, used) as advance:
        for part in chunks(used, AT_ONCE):
            batch = images.batch(torch.arange(part.start, part.stop))
            if factor not in batch.factors:
                raise TorchcapsError(f"these images have no {factor}, only {', '.join(batch.factors) or 'labels'}")
            answers = predict_labels(model, crop_to_model(model, batch.images).to(device)).cpu()
            right.append(answers == batch.labels)
            degrees.append(batch.factors[factor])
            advance(len(answers))
    return torch.cat(right), torch.cat(degrees)
