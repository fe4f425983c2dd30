"""torchcaps papers"""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from pathlib import Path

from torchcaps.cli import console
from torchcaps.cli.reproduce import Out, Runs
from torchcaps.cli.settings import AsJson


def papers(
    out: Out = Path("results"),
    runs: Runs = Path("runs/reproduce"),
    json: AsJson = False,
) -> None:
    """List the papers' tables and figures: how many cells, how many of them are done, how long all of it takes."""
    from torchcaps.reproduce.durations import show_duration
    from torchcaps.reproduce.overview import table_states
    from torchcaps.reproduce.runner import Folders
    from torchcaps.reproduce.speeds import shipped_machine

    states = table_states(Folders(out, runs))
    if json:
        console.print_json([asdict(state) for state in states])
        return
    for paper, tables in groupby(states, key=lambda state: state.paper):
        rows = []
        for state in tables:
            profiles = [
                f"{state.done[profile]}/{wanted}\n{show_duration(state.seconds[profile])}"
                for profile, wanted in state.wanted.items()
            ]
            rows.append((state.table, state.title, str(state.cells), *profiles))
        columns = ("table", "title", "cells", *states[0].wanted)
        console.print_table(paper, columns, rows, numbers=len(columns) - 2)
    console.out.print(
        "For each profile: cells times seeds that are done, and the time of all of them for one worker: by how fast "
        f"networks were here, else on {shipped_machine()}; without measures that were never taken here."
    )
