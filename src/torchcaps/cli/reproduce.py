"""torchcaps reproduce"""

from __future__ import annotations

import math
import shlex
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchcaps.cli import console
from torchcaps.cli.completion import complete
from torchcaps.cli.options import AsJson
from torchcaps.errors import TorchcapsError

# MERGED torchcaps report
if TYPE_CHECKING:
    from torchcaps.reproduce.jobs import Job
    from torchcaps.reproduce.runner import Folders

Out = Annotated[Path, typer.Option(help="Folder of the results.")]
SpecFile = Annotated[
    Path | None, typer.Option(help="Spec file of a paper that is not part of torchcaps; see docs/reproduce.md.")
]
Runs = Annotated[Path, typer.Option(help="Folder of the trained runs.")]


def reproduce(
    paper: Annotated[
        str | None,
        typer.Argument(
            help="Name of a paper, see 'torchcaps papers'; or 'all'. Omit it with --spec.",
            autocompletion=complete("paper"),
        ),
    ] = None,
    table: Annotated[str | None, typer.Argument(help="One of its tables or figures.  [default: all]")] = None,
    spec: SpecFile = None,
    cell: Annotated[str | None, typer.Option(help="Only these cells, names behind commas.")] = None,
    profile: Annotated[str, typer.Option(help="'laptop': small and short; 'paper': as the paper has it.")] = "laptop",
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds.  [default: what each table asks]")] = None,
    budget: Annotated[str | None, typer.Option(help="Stop after this time, such as 90s, 30m or 2h.")] = None,
    engine: Annotated[str, typer.Option(help="'local', or 'slurm' for jobs of a cluster.")] = "local",
    jobs: Annotated[int, typer.Option(min=1, help="How many workers share the work.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the plan and how long it will take.")] = False,
    out: Out = Path("results"),
    runs: Runs = Path("runs/reproduce"),
    json: AsJson = False,
) -> None:
    """Reproduce the tables and figures of a paper: train what they need, measure, and print ours beside the paper's.

    What is done is kept: the same command again goes on where it stood. Several of them at once share the work.
    """
    from torchcaps.reproduce.engines import run_on_engine
    from torchcaps.reproduce.estimate import parse_duration
    from torchcaps.reproduce.jobs import check_profile, load_spec_file, select_jobs, select_specs
    from torchcaps.reproduce.runner import Folders, RunnerContext, failed_results
    from torchcaps.reproduce.status import count_states

    until = time.time() + parse_duration(budget) if budget else math.inf
    names = [name.strip() for name in (cell or "").split(",") if name.strip()]
    if spec:
        if table:
            raise TorchcapsError(f"with --spec, name at most one table and no paper, got '{paper} {table}'")
        specs, table = [load_spec_file(spec)], paper
    elif paper:
        specs = select_specs(paper)
    else:
        raise TorchcapsError("name a paper (see 'torchcaps papers') or give a spec file with --spec")
    work = select_jobs(specs, check_profile(profile), table=table, cells=names, seeds=seeds)
    folders = Folders(out, runs)
    if dry_run:
        print_plan(work, folders, json)
        return
    again = shlex.join(["torchcaps", *sys.argv[1:]])
    context = RunnerContext(folders, until, failed_results(work, out), partial(console.err.print, soft_wrap=True))
    with console.resumable(again):
        run_on_engine(engine, work, context, workers=jobs)
    print_tables(work, folders, json)
    states = count_states(work, out)
    if states["open"]:
        left = f"The time is over; everything is saved. {states['open']} are left. Go on with:\n  {again}"
        console.err.print(left, soft_wrap=True)
    if states["failed"]:
        console.err.print(f"{states['failed']} failed, and are tried again by the same command.")
        raise typer.Exit(1)


def print_plan(jobs: list[Job], folders: Folders, json: bool) -> None:
    from torchcaps.reproduce.estimate import format_duration
    from torchcaps.reproduce.status import PLAN_COLUMNS, plan_rows

    rows, seconds = plan_rows(jobs, folders)
    if json:
        plan = [dict(zip(PLAN_COLUMNS, row, strict=True)) for row in rows]
        console.print_json({"plan": plan, "seconds": seconds})
        return
    console.print_table("Plan", PLAN_COLUMNS, rows, numbers=1)
    console.out.print(
        f"In all about {format_duration(seconds)} for one worker; measures that were never taken here are not counted."
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


def report(
    results: Annotated[Path, typer.Argument(help="Folder of results, as 'torchcaps reproduce' makes it.")] = Path(
        "results"
    ),
    out: Annotated[Path, typer.Option(help="Folder for the pages.")] = Path("site/report"),
    spec: SpecFile = None,
    markdown: Annotated[Path | None, typer.Option(help="Folder for the same as Markdown.")] = None,
) -> None:
    """Build a site from result files: every paper's claims with verdicts, tables and figures."""
    from torchcaps.reproduce.jobs import load_spec_file
    from torchcaps.reproduce.markdown import write_markdown
    from torchcaps.reproduce.pages import write_site
    from torchcaps.reproduce.report import lead_words, read_report

    reports = read_report(results, load_spec_file(spec) if spec else None)
    console.out.print(lead_words(each.claims for each in reports), soft_wrap=True)
    console.out.print(f"Report: {write_site(reports, out)}", soft_wrap=True)
    if markdown:
        console.out.print(f"Markdown: {write_markdown(reports, markdown)}", soft_wrap=True)
