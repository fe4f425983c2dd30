"""Accuracy on the test split, training stopped at a matched accuracy, and test images at a model's image size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from torchcaps.data import ImageSet, Subset, TensorImages, datasets, load_dataset, thirteen_crops
from torchcaps.data.datasets.image_folder import own_folder
from torchcaps.data.transforms import place
from torchcaps.environment import describe_environment
from torchcaps.errors import TorchcapsError
from torchcaps.files import write_json
from torchcaps.models import Model
from torchcaps.train import (
    RunConfig,
    RunFolder,
    evaluate_accuracy,
    load,
    read_validation_metrics,
    resolve,
    training_splits,
)
from torchcaps.train.checkpoint import read_progress
from torchcaps.train.run_images import write_error_reference, write_samples


def test_images(config: RunConfig) -> ImageSet:
    """Return the test split, limited to the number of test images in the run's config."""
    images = load_dataset(config.data, "test")
    if config.test_images is not None and config.test_images < len(images):
        return Subset(images, torch.arange(config.test_images))
    return images


def multicrop_scores(model: Model, images: Tensor) -> Tensor:
    """Average the scores over 13 crops of each image (hinton2018, section 5): (B, C, H, W) to (B, classes)."""
    crops = thirteen_crops(images, model.image_shape[1])
    return torch.stack([model(crop).scores for crop in crops]).mean(0)


def evaluate_run(run: RunFolder) -> dict[str, Any]:
    """Test the checkpoint selected on the validation split, and write the run's result file.

    The test images are used for nothing else.
    """
    config = run.config()
    run.check_dataset()
    model = load(run.path)
    images = test_images(config)
    validations = read_validation_metrics(run.metrics_file)
    measured = evaluate_accuracy(model, images)
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
        "training_core_seconds": read_progress(run.last).core_seconds if run.last.is_file() else None,
        "images_per_second": validations[-1].images_per_second,
        "confusion": measured.confusion.tolist(),
        "environment": describe_environment(),
    }
    write_json(run.output(run.result_file.name), result)
    if own_folder(config.data) is not None:
        write_samples(run, images)
    write_error_reference(run, model, training_splits(config)[1])
    return result


def evaluate_weights(run: RunFolder) -> dict[str, Any]:
    """Test weights without a training record, such as shipped ones; nothing is written."""
    config, model = run.config(), load(run.path)
    run.check_dataset()
    measured = evaluate_accuracy(model, test_images(config))
    return {
        "model": config.model,
        "size": config.size,
        "data": config.data,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "test_accuracy": measured.accuracy,
        "test_images": measured.images,
        "confusion": measured.confusion.tolist(),
        "environment": describe_environment(),
    }


def stop_at_accuracy(config: RunConfig, accuracy: float, on: str = "validation") -> RunConfig:
    """Return the config with training stopped as soon as this accuracy is reached."""
    return resolve(**config.model_dump() | {"stop_at_accuracy": accuracy, "stop_on": on})


def stop_like_baseline(config: RunConfig, baseline: RunFolder) -> RunConfig:
    """Return the config with training stopped at the baseline's accuracy on familiar viewpoints."""
    from torchcaps.evaluate.viewpoint import FAMILIAR  # here, because it imports the attacks

    images = load_dataset(config.data, FAMILIAR)
    accuracy = evaluate_accuracy(load(baseline.path), images, description="familiar viewpoints").accuracy
    if accuracy == 0:
        raise TorchcapsError(f"{baseline.path} has an accuracy of 0 on familiar viewpoints: train it for longer")
    return stop_at_accuracy(config, accuracy, FAMILIAR)


def reached_target(results: Iterable[dict[str, Any]]) -> bool:
    """Return whether every run with a target accuracy reached it."""
    return all(result.get("reached") is not False for result in results)


SMALLEST = 28  # image size in pixels below which digits would be cropped


def check_digits(model: Model, data: str, what: str) -> None:
    """Refuse a model that was not trained on MNIST digits."""
    if datasets.get(data).folder != "mnist" or model.image_shape[0] != 1 or model.image_shape[1] < SMALLEST:
        raise TorchcapsError(f"{what} need a model trained on MNIST digits, got one trained on {data}")


def center_on_canvas(images: Tensor, size: int | tuple[int, int]) -> Tensor:
    """Center images on a black canvas, cropping what is larger.

    Shapes: (..., C, H, W) to (..., C, size, size), or to rows and columns.

    >>> center_on_canvas(torch.ones(1, 1, 2, 2), 4)[0, 0].tolist()[1]
    [0.0, 1.0, 1.0, 0.0]
    """
    height, width = images.shape[-2:]
    flat = images.flatten(0, -4)
    rows, columns = (size, size) if isinstance(size, int) else size
    offset = torch.tensor([(rows - height) // 2, (columns - width) // 2]).expand(len(flat), 2)
    return place(flat, offset, (rows, columns)).view(*images.shape[:-2], rows, columns)


def first_images(model: Model, images: ImageSet, count: int | None) -> TensorImages:
    """Return the first ``count`` images (None for all) at the model's image size; each must have one label."""
    batch = images.batch(torch.arange(len(images) if count is None else min(count, len(images))))
    if batch.labels.ndim != 1:
        raise TorchcapsError(f"this test needs one label per image, got {batch.labels.shape[1]}")
    pixels = center_on_canvas(batch.images, model.image_shape[1:]).mul(255).round().to(torch.uint8)
    return TensorImages(pixels, batch.labels, images.class_names, batch.factors)
