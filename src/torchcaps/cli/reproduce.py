"""torchcaps reproduce, torchcaps report and torchcaps papers"""

from __future__ import annotations

import math
import shlex
import sys
import time
from dataclasses import asdict
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchcaps.cli import console
from torchcaps.cli.options import AsJson, chosen_names, complete, split_names
from torchcaps.errors import TorchcapsError

if TYPE_CHECKING:
    from torchcaps.reproduce.jobs import Job
    from torchcaps.reproduce.runner import Folders

Results = Annotated[Path, typer.Option("--out", help="Directory of the results.")]
SpecFile = Annotated[
    Path | None, typer.Option(help="Spec file of a paper that is not part of torchcaps; see docs/reproduce.md.")
]
Runs = Annotated[Path, typer.Option(help="Directory of the trained runs.")]


def reproduce_command(
    paper: Annotated[
        str | None,
        typer.Argument(
            help="Paper, see 'torchcaps papers'; or 'all'. Omit it with --spec.", autocompletion=complete("paper")
        ),
    ] = None,
    table: Annotated[str | None, typer.Argument(help="One of its tables or figures.  [default: all]")] = None,
    spec: SpecFile = None,
    cell: Annotated[str | None, typer.Option(help="Comma-separated list of cells.  [default: all]")] = None,
    profile: Annotated[
        str,
        typer.Option(
            help="'laptop': minutes, shows that everything runs; 'desk': small models trained until competent, "
            "on one machine without a GPU; 'paper': the paper's settings."
        ),
    ] = "laptop",
    without_training: Annotated[
        bool,
        typer.Option("--without-training", help="Only cells that need no trained network: parameters and step times."),
    ] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds.  [default: set by each table]")] = None,
    budget: Annotated[str | None, typer.Option(help="Time budget, e.g. 90s, 30m or 2h.")] = None,
    engine: Annotated[str, typer.Option(help="'local', or 'slurm' for cluster jobs.")] = "local",
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Number of parallel workers.  [default: 1; profile desk: one per core]"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the plan and its estimated time.")] = False,
    out: Results = Path("results"),
    runs: Runs = Path("runs/reproduce"),
    json: AsJson = False,
) -> None:
    """Reproduce the tables and figures of a paper.

    Trains the models they need, measures them, and prints the results next to the paper's. Finished work is kept: the
    same command resumes. Several processes that run the same command share the work.
    """
    from torchcaps.reproduce.engines import run_on_engine
    from torchcaps.reproduce.estimate import parse_duration
    from torchcaps.reproduce.jobs import check_profile, load_spec_file, select_jobs, select_specs
    from torchcaps.reproduce.runner import Folders, RunnerContext, failed_results
    from torchcaps.reproduce.status import count_states

    until = time.time() + parse_duration(budget) if budget else math.inf
    cells, table = chosen_names(split_names(cell)), None if table == "all" else table
    if spec:
        if table:
            raise TorchcapsError(f"with --spec, name at most one table and no paper, got '{paper} {table}'")
        specs, table = [load_spec_file(spec)], None if paper == "all" else paper
    elif paper:
        specs = select_specs(paper)
    else:
        raise TorchcapsError("name a paper (see 'torchcaps papers') or give a spec file with --spec")
    work = select_jobs(
        specs, check_profile(profile), table=table, cells=cells, seeds=seeds, without_training=without_training
    )
    folders = Folders(out, runs)
    if dry_run:
        print_plan(work, folders, json)
        return
    command = shlex.join(["torchcaps", *sys.argv[1:]])
    context = RunnerContext(folders, until, failed_results(work, out), partial(console.err.print, soft_wrap=True))
    with console.resumable(command):
        run_on_engine(engine, work, context, workers=jobs)
    print_tables(work, folders, json)
    states = count_states(work, out)
    if states["open"]:
        left = f"{states['open']} cell{'s' if states['open'] > 1 else ''}"
        remain = "remain" if states["open"] > 1 else "remains"
        message = f"Time budget reached; the state is saved. {left} {remain}. Resume with:\n  {command}"
        console.err.print(message, soft_wrap=True)
    if states["failed"]:
        console.err.print(f"{states['failed']} failed. Run the same command to retry.")
        raise typer.Exit(1)


def print_plan(jobs: list[Job], folders: Folders, json: bool) -> None:
    from torchcaps.reproduce.engines import default_workers
    from torchcaps.reproduce.estimate import format_duration
    from torchcaps.reproduce.status import CELL_COLUMNS, PLAN_COLUMNS, cell_rows, plan_rows

    rows, estimates = plan_rows(jobs, folders)
    seconds = sum(estimate or 0.0 for estimate in estimates)
    if json:
        plan = [dict(zip(PLAN_COLUMNS, row, strict=True)) for row in rows]
        console.print_json({"plan": plan, "seconds": seconds})
        return
    for title, cells in cell_rows(rows, estimates).items():
        console.print_table(f"Plan: {title}", CELL_COLUMNS, cells, numbers=3)
    workers = default_workers("local", jobs, console.err.print)
    several = f" ({format_duration(seconds / workers)} with the default of {workers} workers)" if workers > 1 else ""
    console.out.print(
        f"Total: about {format_duration(seconds)} with one worker{several}, without measurements that never ran on "
        "this machine. A training that several cells share counts for the first. --json has every seed and training.",
        soft_wrap=True,
    )


def print_tables(jobs: list[Job], folders: Folders, json: bool) -> None:
    from torchcaps.reproduce.status import COLUMNS, FIGURES, summary_rows

    tables = summary_rows(jobs, folders.results)
    if json:
        named = {title: [dict(zip(COLUMNS, row, strict=True)) for row in rows] for title, rows in tables.items()}
        console.print_json(named)
        return
    for title, rows in tables.items():
        console.print_table(title, COLUMNS, rows, numbers=FIGURES)


def report_command(
    results: Annotated[Path, typer.Argument(help="Directory of results from 'torchcaps reproduce'.")] = Path("results"),
    out: Annotated[Path, typer.Option(help="Directory for the HTML pages.")] = Path("site/report"),
    spec: SpecFile = None,
    markdown: Annotated[Path | None, typer.Option(help="Also write Markdown pages into this directory.")] = None,
) -> None:
    """Build a website from reproduced results.

    It has every paper's claims with verdicts, tables and figures.
    """
    from torchcaps.reproduce.jobs import load_spec_file
    from torchcaps.reproduce.report import describe_totals, read_report, total_cost
    from torchcaps.reproduce.report_html import write_site
    from torchcaps.reproduce.report_markdown import write_markdown

    reports = read_report(results, load_spec_file(spec) if spec else None)
    console.out.print(describe_totals((each.claims for each in reports), total_cost(reports)), soft_wrap=True)
    console.out.print(f"Report: {write_site(reports, out)}", soft_wrap=True)
    if markdown:
        console.out.print(f"Markdown: {write_markdown(reports, markdown)}", soft_wrap=True)


def papers_command(
    out: Results = Path("results"),
    runs: Runs = Path("runs/reproduce"),
    json: AsJson = False,
) -> None:
    """List the papers' tables and figures, with progress and time.

    For each profile: how many cells are done, and the estimated time of all of them.
    """
    from torchcaps.reproduce.estimate import format_duration, shipped_machine
    from torchcaps.reproduce.runner import Folders
    from torchcaps.reproduce.status import table_states

    states = table_states(Folders(out, runs))
    if json:
        console.print_json([asdict(state) for state in states])
        return
    for paper, tables in groupby(states, key=lambda state: state.paper):
        rows = []
        for state in tables:
            profiles = [
                f"{state.done[profile]}/{wanted}, {format_duration(state.seconds[profile])}"
                for profile, wanted in state.wanted.items()
            ]
            rows.append((state.table, state.title, str(state.cells), *profiles))
        columns = ("table", "title", "cells", *states[0].wanted)
        console.print_table(paper, columns, rows, numbers=len(columns) - 2)
    console.out.print(
        "For each profile: finished results out of cells times seeds, and the estimated time of all of them with one "
        f"worker, from speeds measured here, otherwise on {shipped_machine()}. Measurements that never ran here are "
        "not counted. '?' is a time that 'torchcaps reproduce PAPER --dry-run' has to measure.",
        soft_wrap=True,
    )
