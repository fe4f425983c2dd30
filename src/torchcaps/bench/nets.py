"""A network to be measured: which one, how large, on how many images."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from torchcaps.models import Model, create_model, models


@dataclass(frozen=True)
class Net:
    """A model of the registry with a batch to run it on.

    Args:
        model: its name.
        size: ``paper`` or ``laptop``.
        batch: images at a time.
        image_size: height and width; None: those of the paper's images.
        channels: of the images; None: as many as the paper's have.
        classes: number of classes.
        options: settings of the model.
        objective: settings of a run that decide what is minimised, where they are not those of the model's recipe.
    """

    model: str
    size: str = "paper"
    batch: int = 8
    image_size: int | None = None
    classes: int = 10
    options: dict[str, Any] = field(default_factory=dict)
    channels: int | None = None
    objective: dict[str, Any] = field(default_factory=dict)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        channels, side, _ = models.get(self.model).image
        side = side if self.image_size is None else self.image_size
        return self.channels or channels, side, side

    def create(self) -> Model:
        """The model, with the same weights each time."""
        torch.manual_seed(0)
        channels, side, _ = self.image_shape
        sizes: dict[str, Any] = {"image_size": side, "channels": channels, "classes": self.classes, "size": self.size}
        return create_model(self.model, **sizes, **self.options)

    def images_and_labels(self) -> tuple[Tensor, Tensor]:
        """Random pixels and classes, the same each time."""
        source = torch.Generator().manual_seed(0)
        images = torch.rand(self.batch, *self.image_shape, generator=source)
        return images, torch.randint(0, self.classes, (self.batch,), generator=source)
