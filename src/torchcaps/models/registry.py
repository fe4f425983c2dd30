"""The registry of models with their training recipes, ``create_model``, and rows for listings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.models.backbone import add_backbone, build_backbone, choose_backbone
from torchcaps.models.base import Model
from torchcaps.registry import Registry
from torchcaps.routing import LayerShape, routings

SIZES = ("paper", "laptop")
BACKBONE_SETTINGS = ("backbone", "freeze_backbone")  # that every model takes


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
    pretrained: str | bool | None = None,
    image_size: int | Sequence[int] = 28,
    channels: int = 1,
    classes: int = 10,
    size: str = "laptop",
    backbone: str | nn.Module = "auto",
    freeze_backbone: bool = False,
    **options: Any,
) -> Model:
    """Build a model by name.

    Args:
        name: one of :func:`list_models`.
        pretrained: tag of the bundled weights to load, see :func:`torchcaps.list_pretrained`, or True for the default
            ones. They determine all other settings; another number of ``classes`` reinitializes the class capsules.
        image_size: height and width in pixels, as one number or two.
        channels: number of image channels.
        classes: number of classes.
        size: ``paper`` for the paper's network; ``laptop``, as in the ``torchcaps`` command, for the same network with
            fewer channels.
        backbone: reduces large images to feature maps of 28x28, see :mod:`torchcaps.models.backbone`.
            ``auto``: one strided convolution for images of more than 48 pixels; ``none``, ``strided``, ``residual``, or
            a module that returns feature maps (B, C, H, W).
        freeze_backbone: do not train the backbone.
        options: settings of this model, such as ``routing="uniform"``.

    >>> sum(p.numel() for p in create_model("capsnet", size="paper", decoder="none").parameters())
    6804224
    >>> create_model("capsnet", pretrained="mnist-laptop").class_names[:3]
    ('0', '1', '2')
    """
    if pretrained not in (None, False):
        from torchcaps.pretrained import find_card  # loaded lazily: it lies above this package
        from torchcaps.pretrained.loading import load_shipped
        from torchcaps.pretrained.transfer import for_other_classes

        trained = load_shipped(find_card(name, None if pretrained is True else str(pretrained)))
        shape, own = trained.config.image_shape, trained.config.size
        fitting = {"image_size": (28, shape[1], shape[1:]), "channels": (1, shape[0]), "size": ("laptop", own)}
        values = {"image_size": image_size, "channels": channels, "size": size}
        given = [setting for setting, value in values.items() if value not in fitting[setting]] + list(options)
        if given:
            raise TorchcapsError(
                f"weights '{trained.name}' determine all settings except for classes, got {', '.join(given)}: omit them"
            )
        same = classes in (10, trained.model.classes)
        return trained.model if same else for_other_classes(trained, classes)
    record = models.get(name)
    if size not in SIZES:
        raise unknown_name("size", size, SIZES)
    for option in options:
        if option not in record.settings():
            common = ["image_size", "channels", "classes", "size", *BACKBONE_SETTINGS]
            raise unknown_name(f"setting of {name}", option, common + record.settings())
    height, width = _two_sides(image_size)
    if min(height, width) < 1 or channels < 1 or classes < 2:
        raise TorchcapsError(
            f"cannot build {name} for {channels} channels of {height}x{width} pixels and {classes} classes: "
            "at least 1 channel, 1 pixel and 2 classes are needed"
        )
    settings = {**(record.laptop if size == "laptop" else {}), **options}
    shape = (channels, height, width)
    below = build_backbone(backbone, shape, frozen=freeze_backbone)
    model = record.build(shape if below is None else below.feature_shape, classes, **settings)
    if below is not None:
        add_backbone(model, below, shape)
    if isinstance(backbone, str):
        chosen = {"backbone": "none" if below is None else choose_backbone(shape) if backbone == "auto" else backbone}
        frozen = {"freeze_backbone": True} if freeze_backbone else {}
        model.built_with = {"model": name, "size": size, "options": {**options, **chosen, **frozen}}
    for module in model.modules():
        if isinstance(module, nn.Conv2d):  # channels-last makes a training step about 10 % faster
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return model


def _two_sides(image_size: int | Sequence[int]) -> tuple[int, int]:
    sides = [image_size, image_size] if isinstance(image_size, int) else list(image_size)
    if len(sides) != 2 or not all(isinstance(side, int) for side in sides):
        raise TorchcapsError(f"image_size should be one number of pixels, or height and width, got {image_size}")
    return sides[0], sides[1]


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


@dataclass(frozen=True)
class SettingRow:
    """A setting of a model: its default, the value in paper size if it differs, and its meaning."""

    name: str
    default: str
    paper: str | None
    meaning: str


def setting_rows(name: str) -> list[SettingRow]:
    """Return all settings of a model; their meaning comes from the docstring of its class."""
    record = models.get(name)
    build = getattr(record.build, "func", record.build)
    meanings = _argument_meanings(inspect.getdoc(create_model) or "")
    for kind in reversed(getattr(build, "__mro__", (build,))):
        meanings |= _argument_meanings(inspect.getdoc(kind) or "")
    capsnet = _argument_meanings(inspect.getdoc(models.get("capsnet").build) or "")
    meanings |= {key: capsnet[key] for key, value in meanings.items() if value.startswith("as in CapsNet")}
    parameters = inspect.signature(record.build).parameters
    rows = [
        SettingRow(
            setting,
            _written(record.laptop.get(setting, parameters[setting].default)),
            _written(parameters[setting].default) if setting in record.laptop else None,
            meanings.get(setting, ""),
        )
        for setting in record.settings()
    ]
    common = inspect.signature(create_model).parameters
    return rows + [SettingRow(key, str(common[key].default), None, meanings.get(key, "")) for key in BACKBONE_SETTINGS]


def _written(value: object) -> str:
    """Write a value as the command line takes it.

    >>> _written((256, 512)), _written(None)
    ('[256, 512]', 'none')
    """
    return "none" if value is None else str(list(value) if isinstance(value, tuple) else value)


def _argument_meanings(text: str) -> dict[str, str]:
    """Parse the ``Args`` of a docstring: the meaning of each argument, on one line."""
    text = re.sub(r":\w+:`([^`]*)`", r"\1", text).replace("``", "'")
    _, _, rest = text.partition("Args:\n")
    meanings: dict[str, str] = {}
    names: list[str] = []
    for line in rest.splitlines():
        if line.strip() and not line.startswith("    "):
            break
        if line.startswith("    ") and line[4:5] != " " and ": " in line:
            left, _, right = line.strip().partition(": ")
            names = [each.strip() for each in left.split(",")]
            meanings |= dict.fromkeys(names, right)
        elif line.strip():
            meanings |= {each: f"{meanings[each]} {line.strip()}" for each in names}
    return meanings


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
