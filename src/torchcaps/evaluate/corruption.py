"""Accuracy on corrupted test images, for each of the fifteen common corruptions and five severities.

Hendrycks, Dietterich: Benchmarking Neural Network Robustness to Common Corruptions and Perturbations, 2019,
https://arxiv.org/abs/1903.12261.
"""

from __future__ import annotations

import statistics
from typing import Any

from torchcaps.attacks.base import predict_labels
from torchcaps.attacks.model_wrapper import frozen_eval
from torchcaps.data import TensorImages
from torchcaps.data.base import as_floats
from torchcaps.data.corruptions import SEVERITIES, corruptions
from torchcaps.models import Model
from torchcaps.progress import progress_bar


def measure_corruptions(model: Model, images: TensorImages) -> dict[str, Any]:
    """Measure the accuracy on clean images, and on all corruptions: ``accuracy`` is the mean over all of them.

    ``by_corruption`` holds the accuracy at each severity, from 1 to 5, with the same random numbers for every model.
    """
    device = next(model.parameters()).device
    pixels, found = as_floats(images.images), {}
    with frozen_eval(model, seed=0), progress_bar("corruptions", len(corruptions.names())) as advance:
        clean = (predict_labels(model, pixels.to(device)).cpu() == images.labels).float().mean().item()
        for corruption in corruptions:
            found[corruption.name] = [
                (predict_labels(model, corruption(pixels, severity).to(device)).cpu() == images.labels)
                .float()
                .mean()
                .item()
                for severity in SEVERITIES
            ]
            advance(1)
    return {
        "name": "corruptions",
        "about": "mean over 15 common corruptions in 5 severities",
        "images": len(images),
        "clean_accuracy": clean,
        "accuracy": statistics.fmean(value for values in found.values() for value in values),
        "by_corruption": found,
    }
