"""Whoever wants to watch a training: three methods, each of which does nothing until it is written."""

from __future__ import annotations

from torchcaps.models import Model
from torchcaps.train.checkpoint import TrainingProgress
from torchcaps.train.metrics import MetricRow


class Callback:
    """Give instances of a subclass to ``fit_run(run, callbacks=[...])``; write the methods that you need.

    A callback watches and changes nothing: each step draws its random numbers from the seed and its own number alone,
    so that a run ends with the same weights whether it is watched or not, and whether it was resumed or not. A resumed
    run calls it for the steps that are left. An error that it raises ends the training, with what was saved before.
    """

    def on_step(self, line: MetricRow) -> None:
        """After every step: its number, and loss and accuracy on its images."""

    def on_validation(self, line: MetricRow, model: Model) -> None:
        """After every validation, with the model as it was validated: in evaluation mode, without gradients."""

    def on_end(self, progress: TrainingProgress, model: Model) -> None:
        """Once the run has come to its end; not when it was stopped to go on later."""
