"""How the commands speak: tables and answers on standard output, everything else on standard error."""

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


def log_to_console() -> None:
    """Show the library's warnings."""
    handler = RichHandler(console=err, show_time=False, show_path=False, level=logging.WARNING)
    logging.getLogger("torchcaps").addHandler(handler)
    # Fabric tells which device it chose at every start; the run folder has it.
    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)


LONGEST_NAME = 40


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: int = 0) -> None:
    """A table whose last ``numbers`` columns are figures. A name in the first column is not broken, a sentence is."""
    table = Table(title=title, title_justify="left", header_style="bold")
    names = max((len(row[0]) for row in rows), default=0) <= LONGEST_NAME
    for position, column in enumerate(columns):
        justify: Literal["left", "right"] = "right" if position >= len(columns) - numbers else "left"
        table.add_column(column, justify=justify, no_wrap=names and position == 0)
    for row in rows:
        table.add_row(*map(printable, row))  # before widths are measured
    out.print(table)


def print_json(value: Any) -> None:
    """A value for another program, in ASCII: nothing in it can act on a terminal."""
    out.print_json(json.dumps(value), ensure_ascii=True)


def warn(sentence: str) -> None:
    """What a person should know, beside the answer."""
    err.print(Text.assemble(("Warning:", "bold yellow"), f" {sentence}"), soft_wrap=True)


@contextlib.contextmanager
def resumable(command: str) -> Iterator[None]:
    """Say how to go on when a person or a scheduler stops the work."""
    import typer

    from torchcaps.train import Interrupted

    try:
        yield
    except Interrupted:
        err.print(f"Stopped; everything is saved. Go on with:\n  {command}", soft_wrap=True)  # to be copied whole
        raise typer.Exit(130) from None
