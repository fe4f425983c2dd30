"""Models: one file per paper, plain baselines, and a registry of their records."""

from torchcaps.models import baselines, hinton2018, sabour2017  # noqa: F401  (each registers its models)
from torchcaps.models.base import Model, Output
from torchcaps.models.registry import ModelRecord, Recipe, create_model, list_models, models

__all__ = ["Model", "ModelRecord", "Output", "Recipe", "create_model", "list_models", "models"]
