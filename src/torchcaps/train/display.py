"""The progress bar and the validation messages of a training."""

from __future__ import annotations

from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from torchcaps.progress import error_console
from torchcaps.train.metrics import MetricRow


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
            disable=not shown or not self.console.is_terminal,  # a log file gets only the validation messages
        )
        self._task = self._bar.add_task(title, total=total, completed=start, state="")
        self._title = title

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

    def validated(self, row: MetricRow) -> None:
        """Print the result of a validation."""
        if not self.shown:
            return
        self.console.print(
            f"{self._title}: epoch {row.epoch:.2f}, validation accuracy {row.accuracy:.2%}, "
            f"{row.images_per_second:,.0f} images/s",
            highlight=False,
        )
