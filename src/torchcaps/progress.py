"""Progress bars on standard error, for anything that may take more than two seconds."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from rich.console import Console
from rich.segment import Segment

from torchcaps.files import printable

Advance = Callable[[int], None]
LINE_SECONDS = 30.0  # between two lines of progress in a log file


class SafeConsole(Console):
    """A console for untrusted text that survives a closed pipe or terminal.

    Markup is not interpreted and control characters are replaced. After the pipe or terminal is closed, output is
    discarded and the program continues.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, markup=False, emoji=False)

    def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else "\n".join(map(printable, segment.text.split("\n")))
            yield segment if text == segment.text else Segment(text, segment.style)

    def on_broken_pipe(self) -> None:
        self.quiet = True
        # Python flushes the stream once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())

    def _check_buffer(self) -> None:
        try:
            super()._check_buffer()
        except OSError as error:
            if error.errno != errno.EIO:  # a terminal that was closed
                raise
            self.on_broken_pipe()


@cache
def error_console() -> Console:
    """Return the shared console on standard error, so that concurrent progress bars do not overlap."""
    return SafeConsole(stderr=True)


@contextlib.contextmanager
def progress_bar(description: str, total: int | None, *, unit: str = "") -> Iterator[Advance]:
    """Show a progress bar while the block runs; the block calls the yielded function with the amount completed.

    ``total=None`` shows activity without a total. ``unit="bytes"`` counts in kB, MB and so on.
    """
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    count = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), count, TimeRemainingColumn())
    console = error_console()
    if not console.is_terminal:  # no bar in a log file
        with progress_lines(description, total) as advance:
            yield advance
        return
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(description, total=total)
        yield lambda amount: progress.update(task, advance=amount)


@contextlib.contextmanager
def progress_lines(description: str, total: int | None) -> Iterator[Advance]:
    """Print a line every LINE_SECONDS while the block runs, so that a log file shows that it is alive."""
    done, finished, began = 0, threading.Event(), time.monotonic()

    def advance(amount: int) -> None:
        nonlocal done
        done += amount

    def report() -> None:
        while not finished.wait(LINE_SECONDS):
            seconds = time.monotonic() - began
            state = f"{done:,} of {total:,}, " if total else ""
            error_console().print(f"{description}: {state}after {seconds:.0f} s", soft_wrap=True)

    threading.Thread(target=report, name="progress", daemon=True).start()
    try:
        yield advance
    finally:
        finished.set()


@contextlib.contextmanager
def silence(wanted: bool = True) -> Iterator[None]:
    """Suppress all output on standard error while the block runs, if ``wanted``."""
    console = error_console()
    before, console.quiet = console.quiet, console.quiet or wanted
    try:
        yield
    finally:
        console.quiet = before
