"""The registry of models with their training recipes, ``create_model``, and rows for listings."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.models.base import Model
from torchcaps.registry import Registry
from torchcaps.routing import LayerShape, routings

SIZES = ("paper", "laptop")


@dataclass(frozen=True)
class Recipe:
    """A paper's training settings for a model; a run can override each of them."""

    loss: str
    reconstruction_weight: float = 0.0
    reconstruction: str = "sum"  # of the squared error over pixels, or "mean"
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    schedule: str = "constant"
    batch_size: int = 128
    # Laptop runs have few epochs, so they use smaller batches and a faster decay of the learning rate.
    laptop_batch_size: int = 32
    laptop_schedule: str | None = None  # None for the paper's schedule


@dataclass(frozen=True)
class ModelRecord:
    """A model by name.

    ``laptop`` holds the settings of the laptop size, ``earlier_laptop`` those of earlier releases, whose saved weights
    still load. ``image`` is the paper's image shape (channels, height, width), and ``needs`` states requirements on
    images or training in a few words.
    """

    name: str
    description: str
    paper: str
    build: Callable[..., Model]
    recipe: Recipe
    laptop: dict[str, Any] = field(default_factory=dict)
    earlier_laptop: tuple[dict[str, Any], ...] = ()
    capsules: bool = True
    image: tuple[int, int, int] = (1, 28, 28)
    needs: str = ""

    def settings(self) -> list[str]:
        """Names of the model's settings, without image shape and classes."""
        parameters = inspect.signature(self.build).parameters.values()
        return [each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]


models: Registry[ModelRecord] = Registry("model")
"""All models by name."""


def list_models() -> list[str]:
    """Names of all models."""
    return models.names()


def create_model(
    name: str,
    *,
    pretrained: str | None = None,
    image_size: int = 28,
    channels: int = 1,
    classes: int = 10,
    size: str = "paper",
    **options: Any,
) -> Model:
    """Build a model by name.

    Args:
        name: one of :func:`list_models`.
        pretrained: tag of the bundled weights to load, see :func:`torchcaps.list_pretrained`. They determine all
            other settings, so give none.
        image_size: height and width in pixels.
        channels: number of image channels.
        classes: number of classes.
        size: ``paper`` for the paper's network, ``laptop`` for the same network with fewer channels.
        options: settings of this model, such as ``routing="uniform"``.

    >>> sum(p.numel() for p in create_model("capsnet", decoder="none").parameters())
    6804224
    >>> create_model("capsnet", pretrained="mnist-laptop").class_names[:3]
    ('0', '1', '2')
    """
    if pretrained is not None:
        from torchcaps.pretrained import find_card, load_pretrained  # loaded lazily: it lies above this package

        defaults = {"image_size": 28, "channels": 1, "classes": 10, "size": "paper"}
        values = {"image_size": image_size, "channels": channels, "classes": classes, "size": size}
        given = [setting for setting, value in values.items() if value != defaults[setting]] + list(options)
        if given:
            raise TorchcapsError(f"weights '{pretrained}' determine all settings, got {', '.join(given)}: omit them")
        return load_pretrained(find_card(name, pretrained))
    record = models.get(name)
    if size not in SIZES:
        raise unknown_name("size", size, SIZES)
    for option in options:
        if option not in record.settings():
            common = ["image_size", "channels", "classes", "size"]
            raise unknown_name(f"setting of {name}", option, common + record.settings())
    if image_size < 1 or channels < 1 or classes < 2:
        raise TorchcapsError(
            f"cannot build {name} for {channels} channels of {image_size} pixels and {classes} classes: "
            "at least 1 channel, 1 pixel and 2 classes are needed"
        )
    settings = {**(record.laptop if size == "laptop" else {}), **options}
    model = record.build((channels, image_size, image_size), classes, **settings)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):  # channels-last makes a training step about 10 % faster
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


# Class layer of CapsNet in laptop size, for counting the parameters of routings.
LAYER = LayerShape(positions=1, children=288, parents=10, size=16, activations=True, child_size=8)


@dataclass(frozen=True)
class ModelRow:
    """A row of ``torchcaps models``; parameters are counted for the paper's image shape and ten classes."""

    name: str
    paper: str
    description: str
    image: str
    paper_parameters: int
    laptop_parameters: int
    needs: str


@dataclass(frozen=True)
class RoutingRow:
    """A row of ``torchcaps routings``; parameters are counted in the class layer of a laptop CapsNet."""

    name: str
    paper: str
    description: str
    parameters: int
    needs: str


def model_rows() -> list[ModelRow]:
    """Rows of all models. Parameters are counted on the meta device, without allocating memory."""
    return [
        ModelRow(
            record.name,
            record.paper,
            record.description,
            "{1}x{2}x{0}".format(*record.image),
            count_parameters(record, "paper"),
            count_parameters(record, "laptop"),
            record.needs,
        )
        for record in models
    ]


def routing_rows() -> list[RoutingRow]:
    """Rows of all routings."""
    rows = []
    for record in routings:
        with torch.device("meta"):
            numbers = sum(parameter.numel() for parameter in record.build(LAYER).parameters())
        rows.append(RoutingRow(record.name, record.paper, record.description, numbers, record.needs))
    return rows


def count_parameters(record: ModelRecord, size: str) -> int:
    """Count the parameters of a model for the paper's image shape and ten classes."""
    channels, pixels, _ = record.image
    with torch.device("meta"):
        model: Model = create_model(record.name, image_size=pixels, channels=channels, size=size)
    return sum(parameter.numel() for parameter in model.parameters())
