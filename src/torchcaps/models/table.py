"""What there is to choose from, as rows for a listing."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torchcaps.models.base import Model
from torchcaps.models.registry import ModelRecord, create_model, models
from torchcaps.routing import LayerShape, routings

# CapsNet's class layer in laptop size: where parameters of routings are counted.
LAYER = LayerShape(positions=1, children=288, parents=10, size=16, activations=True)


@dataclass(frozen=True)
class ModelRow:
    """A line of ``torchcaps models``; the counts are for the image of the paper and ten classes."""

    name: str
    paper: str
    description: str
    image: str
    paper_parameters: int
    laptop_parameters: int
    needs: str


@dataclass(frozen=True)
class RoutingRow:
    """A line of ``torchcaps routings``; the parameters are those in the class layer of a laptop CapsNet."""

    name: str
    paper: str
    description: str
    parameters: int
    needs: str


def model_rows() -> list[ModelRow]:
    """All models. Nothing is allocated: parameters are counted on shapes alone."""
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
    """All routings."""
    rows = []
    for record in routings:
        with torch.device("meta"):
            numbers = sum(parameter.numel() for parameter in record.build(LAYER).parameters())
        rows.append(RoutingRow(record.name, record.paper, record.description, numbers, record.needs))
    return rows


def count_parameters(record: ModelRecord, size: str) -> int:
    """Parameters of a model for the paper's image and ten classes."""
    channels, pixels, _ = record.image
    with torch.device("meta"):
        model: Model = create_model(record.name, image_size=pixels, channels=channels, size=size)
    return sum(parameter.numel() for parameter in model.parameters())
