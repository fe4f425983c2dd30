"""The weights that are shipped, as rows for a listing."""

from __future__ import annotations

from typing import Any

from torchcaps.pretrained.cards import ROOT, Card, list_pretrained
from torchcaps.pretrained.load import WEIGHTS
from torchcaps.pretrained.trained import describe_input
from torchcaps.train import RunFolder


def weight_rows() -> list[dict[str, Any]]:
    """For each network its card, with what it takes, its classes and the size of its file."""
    return [weight_row(card) for card in list_pretrained()]


def weight_row(card: Card) -> dict[str, Any]:
    """One row."""
    config = RunFolder(ROOT / card.name).config()
    return {
        "name": card.name,
        **card.model_dump(mode="json"),
        "classes": list(config.class_names),
        "preprocessing": describe_input(config.image_shape),
        "bytes": (ROOT / card.name / WEIGHTS).stat().st_size,
    }
