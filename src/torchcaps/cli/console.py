"""Console output: tables and results on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from torchcaps.files import printable
from torchcaps.progress import SafeConsole, error_console

out = SafeConsole()
err = error_console()

MOST_LINES = 3  # of a cell in a table; a table with longer ones is printed as a list
KEPT = "\N{NO-BREAK SPACE}"
TEXTS = ("description", "title")  # columns whose name says nothing in a list


def log_to_console() -> None:
    """Show the library's warnings on standard error."""
    logger = logging.getLogger("torchcaps")
    logger.handlers = [each for each in logger.handlers if not isinstance(each, WarningHandler)] + [WarningHandler()]
    # Fabric logs the device at every start; the run directory records it.
    logging.getLogger("lightning_fabric").setLevel(logging.ERROR)


class WarningHandler(logging.Handler):
    """Print the library's warnings as those of a command, each only once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        sentence = self.format(record)
        if sentence not in self._printed:
            self._printed.add(sentence)
            warn(sentence)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: int = 0) -> None:
    """Print a table; its last ``numbers`` columns are right-aligned.

    No cell is cut: a table that is too wide for the terminal, or for the 80 columns of a pipe, becomes a list.
    """
    cells = [tuple(map(printable, row)) for row in rows]  # before widths are measured
    whole = [position == 0 or position >= len(columns) - numbers for position in range(len(columns))]
    least = [
        _least_width(column, [row[number] for row in cells], whole[number]) for number, column in enumerate(columns)
    ]
    widths = _column_widths(columns, cells, least, whole)
    if widths is None:
        _print_list(title, columns, cells)
        return
    table = Table(title=title, title_justify="left", header_style="bold")
    for position, width in enumerate(widths):
        justify: Literal["left", "right"] = "right" if position >= len(columns) - numbers else "left"
        table.add_column(columns[position], justify=justify, width=width)
    for row in cells:
        table.add_row(*row)
    out.print(table)


def _least_width(column: str, cells: Sequence[str], whole: bool) -> int:
    """Return the width of a column that cuts no word, and no line if its cells are kept whole."""
    lines = [line for cell in cells for line in (cell.splitlines() if whole else cell.split())]
    return max((cell_len(text) for text in [*column.split(), *lines]), default=0)


def _column_widths(
    columns: Sequence[str], rows: Sequence[Sequence[str]], least: Sequence[int], whole: Sequence[bool]
) -> list[int] | None:
    """Return widths with at most MOST_LINES lines per cell; None if the table does not fit.

    What is left goes to the columns that lack least. Rich would reduce a column below its least width, widen it again,
    and cut the last one.
    """
    wanted, widths = [], []
    for position, column in enumerate(columns):
        lines = [line for row in rows for line in row[position].splitlines()]
        wanted.append(max(map(cell_len, [column, *lines])))
        longest = max((cell_len(row[position]) for row in rows), default=0)
        share = 0.0 if whole[position] else longest / MOST_LINES * (1 + 0.25 / MOST_LINES)  # words leave gaps
        widths.append(max(least[position], math.ceil(share)))
    free = out.width - 3 * len(widths) - 1 - sum(widths)
    if free < 0:
        return None
    for position in sorted(range(len(widths)), key=lambda number: wanted[number] - widths[number]):
        more = min(free, max(0, wanted[position] - widths[position]))
        widths[position] += more
        free -= more
    return widths


def _print_list(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print each row as its first cell, its long texts and a line with the other facts."""
    out.print(Text(title, style="bold"))
    for row in rows:
        facts = [(name, cell) for name, cell in zip(columns[1:], row[1:], strict=True) if cell]
        texts = [cell for name, cell in facts if name in TEXTS]
        short = [f"{name}: {cell}" for name, cell in facts if name not in TEXTS]
        # A line may only end between two facts, unless one of them is longer than a line.
        short = [fact.replace(" ", KEPT) if cell_len(fact) <= out.width - 2 else fact for fact in short]
        out.print(Text(row[0]), soft_wrap=True)
        for paragraph in (*texts, "; ".join(short)):
            print_paragraph(paragraph, indent=2)


def print_paragraph(text: str, *, indent: int) -> None:
    """Print a text in lines that fit, indented; nothing if it is empty."""
    lines = textwrap.wrap(text, out.width - indent, break_long_words=False, break_on_hyphens=False)
    if lines:
        out.print(Text(textwrap.indent("\n".join(lines), " " * indent).replace(KEPT, " ")), soft_wrap=True)


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
