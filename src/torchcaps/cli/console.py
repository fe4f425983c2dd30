"""Console output: tables and results on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from rich.logging import RichHandler
from rich.table import Table
from rich.text import Text

from torchcaps.files import printable
from torchcaps.progress import SafeConsole, error_console

out = SafeConsole()
err = error_console()

LONGEST_NAME = 40  # characters of a first cell that is kept on one line


def log_to_console() -> None:
    """Show the library's warnings on standard error."""
    handler = RichHandler(console=err, show_time=False, show_path=False, level=logging.WARNING)
    logging.getLogger("torchcaps").addHandler(handler)
    # Fabric logs the device at every start; the run directory records it.
    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: int = 0) -> None:
    """Print a table; its last ``numbers`` columns are right-aligned. Short names in the first column do not wrap."""
    table = Table(title=title, title_justify="left", header_style="bold")
    names = max((len(row[0]) for row in rows), default=0) <= LONGEST_NAME
    for position, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if position >= len(columns) - numbers else "left"
        table.add_column(column, justify=justify, no_wrap=names and position == 0)
    for row in rows:
        table.add_row(*map(printable, row))  # before rich measures widths
    out.print(table)


def print_json(value: Any) -> None:
    """Print a value as ASCII JSON: nothing in it can act on a terminal."""
    out.print_json(json.dumps(value), ensure_ascii=True)


def warn(sentence: str) -> None:
    """Print a warning on standard error."""
    err.print(Text.assemble(("Warning:", "bold yellow"), f" {sentence}"), soft_wrap=True)


@contextlib.contextmanager
def resumable(command: str) -> Iterator[None]:
    """Print the command that resumes the work when Ctrl-C or a scheduler interrupts it."""
    import typer

    from torchcaps.train import Interrupted

    try:
        yield
    except Interrupted:
        err.print(f"Interrupted; the state is saved. Resume with:\n  {command}", soft_wrap=True)
        raise typer.Exit(130) from None
