"""Progress bars on standard error, for anything that may take more than two seconds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from torchcaps.files import printable

if TYPE_CHECKING:
    from rich.console import Console

Advance = Callable[[int], None]


@cache
def error_console() -> Console:
    """Standard error as one console for all: bars that run at the same time then stand below each other."""
    return plain_console(stderr=True)


def plain_console(*, stderr: bool = False) -> Console:
    """A console that shows names as they are: no markup in them is obeyed, and no control character passes."""
    from rich.console import Console
    from rich.segment import Segment

    class PlainConsole(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                text = segment.text if segment.control else "\n".join(map(printable, segment.text.split("\n")))
                yield segment if text == segment.text else Segment(text, segment.style)

    return PlainConsole(stderr=stderr, highlight=False, markup=False, emoji=False)


@contextlib.contextmanager
def progress_bar(description: str, total: int | None, *, unit: str = "") -> Iterator[Advance]:
    """Show a bar while the block runs; the block calls the given function with what it has done.

    ``total=None`` shows that something is happening when nobody can say how much is left. ``unit="bytes"``
    counts in kB, MB and so on.
    """
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    count = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), count, TimeRemainingColumn())
    console = error_console()
    # A bar in a log file would be noise.
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(description, total=total)
        yield lambda amount: progress.update(task, advance=amount)


@contextlib.contextmanager
def silence(wanted: bool = True) -> Iterator[None]:
    """Show no bar and no line on standard error while the block runs, if that is wanted."""
    console = error_console()
    before, console.quiet = console.quiet, console.quiet or wanted
    try:
        yield
    finally:
        console.quiet = before
