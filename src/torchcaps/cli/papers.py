"""torchcaps papers"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli import console
from torchcaps.cli.reproduce import Out, Runs


def papers(
    out: Out = Path("results"),
    runs: Runs = Path("runs/reproduce"),
    json: Annotated[bool, typer.Option(help="Print as JSON.")] = False,
) -> None:
    """List the papers' tables and figures: how many cells, how many of them are done, how long all of it takes."""
    from torchcaps.reproduce.durations import show_duration
    from torchcaps.reproduce.overview import table_states
    from torchcaps.reproduce.runner import Folders

    states = table_states(Folders(out, runs))
    if json:
        console.print_json([asdict(state) for state in states])
        return
    rows = []
    for state in states:
        profiles = [
            text
            for profile in state.wanted
            for text in (f"{state.done[profile]}/{state.wanted[profile]}", show_duration(state.seconds[profile]))
        ]
        rows.append((state.paper, state.table, state.title, str(state.cells), *profiles))
    numbers = [f"{profile} {what}" for profile in states[0].wanted for what in ("done", "time")]
    console.print_table("Papers", ("paper", "table", "title", "cells", *numbers), rows, numbers=1 + len(numbers))
    console.out.print(
        "done: cells times seeds; time: of all of it, for one worker; ?: nothing like it was trained here"
    )
