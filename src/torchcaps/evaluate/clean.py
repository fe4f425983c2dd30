"""Accuracy on the test split."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchcaps.data import ImageSet, Subset, load_dataset, thirteen_crops
from torchcaps.environment import describe_environment
from torchcaps.files import write_json
from torchcaps.models import Model
from torchcaps.train import RunConfig, RunFolder, load, measure, validation_lines


def test_images(config: RunConfig) -> ImageSet:
    """The test split, or as many of its images as the run's settings say."""
    images = load_dataset(config.data, "test")
    if config.test_images is not None and config.test_images < len(images):
        return Subset(images, torch.arange(config.test_images))
    return images


def multicrop_scores(model: Model, images: Tensor) -> Tensor:
    """Mean scores over 13 crops of each image (hinton2018, section 5): (B, C, H, W) to (B, classes)."""
    crops = thirteen_crops(images, model.image_shape[1])
    return torch.stack([model(crop).scores for crop in crops]).mean(0)


def evaluate_run(run: RunFolder) -> dict[str, Any]:
    """Test the checkpoint that validation chose, and write the run's result file.

    The test images take part in nothing but this number.
    """
    config = run.config()
    run.check_dataset()
    model = load(run.path)
    images = test_images(config)
    validations = validation_lines(run.metrics_file)
    measured = measure(model, images)
    chosen = max(validations, key=lambda line: line.accuracy)
    result = {
        "model": config.model,
        "size": config.size,
        "data": config.data,
        "seed": config.seed,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "selection_split": config.stop_on,
        "selected_step": chosen.step,
        "validation_accuracy": chosen.accuracy,
        "stop_at_accuracy": config.stop_at_accuracy,
        "reached": None if config.stop_at_accuracy is None else chosen.accuracy >= config.stop_at_accuracy,
        "test_accuracy": measured.accuracy,
        "test_images": measured.images,
        "training_seconds": validations[-1].seconds,
        "images_per_second": validations[-1].images_per_second,
        "confusion": measured.confusion.tolist(),
        "environment": describe_environment(),
    }
    write_json(run.output(run.result_file.name), result)
    return result
