"""Observers of a training run: callbacks and the progress bar."""

from __future__ import annotations

import time
from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from torchcaps.models import Model
from torchcaps.progress import LINE_SECONDS, error_console
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


class Display:
    """A progress bar with loss, accuracy and speed, and a message for each validation."""

    def __init__(self, title: str, start: int, total: int, *, shown: bool = True) -> None:
        self.console, self.shown = error_console(), shown
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not shown or not self.console.is_terminal,  # a log file gets lines
        )
        self._task = self._bar.add_task(title, total=total, completed=start, state="")
        self._title, self._done, self._total, self._last_line = title, start, total, time.monotonic()

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def step(self, loss: float, accuracy: float, images_per_second: float) -> None:
        """Advance the bar by one step."""
        state = f"loss {loss:.4f}  accuracy {accuracy:.2%}  {images_per_second:,.0f} images/s"
        self._bar.update(self._task, advance=1, state=state)
        self._done += 1
        silent = time.monotonic() - self._last_line
        if self.shown and not self.console.is_terminal and silent >= LINE_SECONDS:
            self._print(f"step {self._done:,} of {self._total:,}, {state.replace('  ', ', ')}")

    def validated(self, row: MetricRow) -> None:
        """Print the result of a validation."""
        if not self.shown:
            return
        self._print(
            f"epoch {row.epoch:.2f}, validation accuracy {row.accuracy:.2%}, {row.images_per_second:,.0f} images/s"
        )

    def _print(self, message: str) -> None:
        self._last_line = time.monotonic()
        self.console.print(f"{self._title}: {message}", highlight=False, soft_wrap=True)
