"""What a person sees while a model trains."""

from __future__ import annotations

from types import TracebackType

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from torchcaps.progress import error_console
from torchcaps.train.metrics import MetricRow


class Display:
    """A bar with loss, accuracy, images per second and time left, and a line for each validation."""

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
            disable=not shown or not self.console.is_terminal,  # in a log file only the lines of the validations
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
        """One training step is done."""
        state = f"loss {loss:.4f}  accuracy {accuracy:.2%}  {images_per_second:,.0f} images/s"
        self._bar.update(self._task, advance=1, state=state)

    def validated(self, line: MetricRow) -> None:
        """A validation is done."""
        if not self.shown:
            return
        self.console.print(
            f"{self._title}: epoch {line.epoch:.2f}, validation accuracy {line.accuracy:.2%}, "
            f"{line.images_per_second:,.0f} images/s",
            highlight=False,
        )
