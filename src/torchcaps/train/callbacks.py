"""Callbacks: observers of a training run."""

from __future__ import annotations

from torchcaps.models import Model
from torchcaps.train.checkpoint import TrainingProgress
from torchcaps.train.metrics import MetricRow


class Callback:
    """Base class of callbacks; override the methods that you need and pass instances as ``callbacks=[...]``.

    A callback does not influence the training: every step seeds its random numbers from the seed and the step, so a
    run ends with the same weights with or without callbacks. A resumed run calls them for the remaining steps. An
    exception ends the training; the last checkpoint remains.
    """

    def on_step(self, row: MetricRow) -> None:
        """Called after every step, with its loss and accuracy on its batch."""

    def on_validation(self, row: MetricRow, model: Model) -> None:
        """Called after every validation, with the model in evaluation mode and gradients disabled."""

    def on_end(self, progress: TrainingProgress, model: Model) -> None:
        """Called when the run is complete; not when it was stopped to be resumed later."""
