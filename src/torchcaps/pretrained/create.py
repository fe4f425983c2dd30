"""``create_model`` with ready weights; apart from the loader, so that a fresh model needs nothing of training."""

from __future__ import annotations

from typing import Any

from torchcaps.errors import TorchcapsError
from torchcaps.models import Model
from torchcaps.models import create_model as create_fresh_model
from torchcaps.pretrained.cards import find_card


def create_model(name: str, *, pretrained: str | None = None, **settings: Any) -> Model:
    """Build a model by name, with fresh weights or with weights that are shipped.

    Args:
        name: one of :func:`torchcaps.list_models`.
        pretrained: the tag of shipped weights, see :func:`torchcaps.list_pretrained`; they bring all settings along.
        settings: of a fresh model: ``image_size``, ``channels``, ``classes``, ``size`` and the model's own.

    >>> create_model("capsnet", pretrained="mnist-laptop").class_names[:3]
    ('0', '1', '2')
    """
    if pretrained is None:
        return create_fresh_model(name, **settings)
    if settings:
        given = ", ".join(settings)
        raise TorchcapsError(f"weights '{pretrained}' bring their own settings, got {given} as well: leave them out")
    from torchcaps.pretrained.load import load_pretrained

    return load_pretrained(find_card(name, pretrained))
