"""Models: one file per paper, plain baselines, and a registry of their records."""

from torchcaps.models import (  # noqa: F401  (each registers its models)
    baselines,
    chen2019,
    choi2019,
    gu2021,
    hinton2018,
    sabour2017,
    yang2021,
)
from torchcaps.models.base import Ensemble, Model, Output
from torchcaps.models.registry import ModelRecord, Recipe, create_model, list_models, models

__all__ = ["Ensemble", "Model", "ModelRecord", "Output", "Recipe", "create_model", "list_models", "models"]
