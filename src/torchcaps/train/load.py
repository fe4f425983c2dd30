"""From a run's folder to a model ready for use."""

from __future__ import annotations

from pathlib import Path

from torchcaps.models import Model
from torchcaps.train.checkpoint import load_weights
from torchcaps.train.config import RunConfig
from torchcaps.train.run_folder import open_run


def load(run: str | Path) -> Model:
    """The model of a run, with the weights that were best on the validation images, in evaluation mode.

    It takes pixels in [0, 1]: whatever preparation it was trained with is part of it. Its ``class_names`` say
    what its scores are for.
    """
    folder = open_run(Path(run))
    return load_model(folder.config(), folder.best)


def load_model(config: RunConfig, weights: Path, *, prefix: str = "model.") -> Model:
    """The model of these settings with the weights of a file, in evaluation mode."""
    model = config.build_model(weights, prefix=prefix)
    load_weights(weights, model, prefix=prefix)
    model.class_names = config.class_names
    return model.eval()
