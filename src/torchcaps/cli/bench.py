"""torchcaps bench, and bench step | memory | growth | claims | convolutions | malloc | data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from torchcaps.cli import console
from torchcaps.cli.bench_tables import (
    Batch,
    Compile,
    Models,
    Out,
    Rounds,
    Seconds,
    Sizes,
    Threads,
    can_compile,
    choose,
    make_budget,
    numbers,
    show_allocators,
    show_checks,
    show_convolutions,
    show_growth,
    show_memory,
    show_steps,
    tell,
)
from torchcaps.cli.data import bench_data_command
from torchcaps.cli.options import AsJson
from torchcaps.errors import unknown_name

bench_app = typer.Typer(
    help="Measure speed and memory on this machine; without a command, a quick look at two networks."
)
bench_app.command("data")(bench_data_command)

RESULTS = Path("results/bench")


@bench_app.callback(invoke_without_command=True)
def quick(context: typer.Context, json: AsJson = False) -> None:
    """Measure speed and memory; without a command, two laptop networks in a minute, and nothing is written."""
    if context.invoked_subcommand is not None:
        return
    from torchcaps.bench.steps import time_nets, weigh_nets

    nets, budget = choose("capsnet,matrix-capsnet", "laptop", 8), make_budget(5, 10.0)
    steps, sizes = list(time_nets(nets, numbers("1,2"), budget)), list(weigh_nets(nets))
    if json:
        console.print_json({"steps": steps, "memory": sizes})
        return
    show_steps(steps)
    show_memory(sizes)


@bench_app.command()
def step(
    models: Models = "all",
    size: Sizes = "paper,laptop",
    batch: Batch = 8,
    threads: Threads = "1,2",
    rounds: Rounds = 9,
    seconds: Seconds = 20.0,
    compile: Compile = False,
    out: Out = RESULTS,
    json: AsJson = False,
) -> None:
    """Time training steps and inference in all forms: ours, plain, as public code writes it, convolutions alone."""
    from torchcaps.bench.steps import time_nets, write_rows

    nets, budget, compiled = choose(models, size, batch), make_budget(rounds, seconds), can_compile(compile)
    # Compiling takes hours: a size may be measured alone, and nothing else should wait for it.
    name = f"step-compiled-{size.replace(',', '-')}" if compiled else "step"
    path, rows = write_rows(out, name, time_nets(nets, numbers(threads), budget, compiled=compiled))
    tell(json, rows, show_steps, path)


@bench_app.command()
def memory(
    models: Models = "all",
    size: Sizes = "paper,laptop",
    batch: Batch = 8,
    compile: Compile = False,
    out: Out = RESULTS,
    json: AsJson = False,
) -> None:
    """Weigh a training step in all forms, each in a fresh process."""
    from torchcaps.bench.steps import weigh_nets, write_rows

    path, rows = write_rows(out, "memory", weigh_nets(choose(models, size, batch), compiled=can_compile(compile)))
    tell(json, rows, show_memory, path)


@bench_app.command()
def growth(
    models: Models = "capsnet,matrix-capsnet",
    rounds: Rounds = 5,
    seconds: Seconds = 60.0,
    out: Out = RESULTS,
    json: AsJson = False,
) -> None:
    """Measure how time and memory grow with batch, types, iterations and image size; also as a picture."""
    from torchcaps.bench.growth import draw_growth, measure_growth
    from torchcaps.bench.steps import write_result

    for found in measure_growth(models.split(","), make_budget(rounds, seconds)):
        path = write_result(out, "growth", {"threads": 1, "models": found})
    draw_growth(found, out / "growth.svg")
    tell(json, found, show_growth, path, out / "growth.svg")


@bench_app.command()
def claims(
    cases: Annotated[list[str] | None, typer.Argument(help="Which ones; all if none is named.")] = None,
    rounds: Rounds = 9,
    seconds: Seconds = 120.0,
    compile: Compile = False,
    shrink: Annotated[int, typer.Option(help="Divide all batches, to try it out; it then counts for nothing.")] = 1,
    out: Out = RESULTS,
    json: AsJson = False,
) -> None:
    """Check what the project claims about its speed: measured, target, met or not."""
    from torchcaps.bench.claims import CASES, Settings
    from torchcaps.bench.steps import write_result

    for name in cases or ():
        if name not in CASES:
            raise unknown_name("case", name, CASES)
    settings = Settings(make_budget(rounds, seconds), can_compile(compile), shrink)
    values: dict[str, Any] = {}
    for name in cases or CASES:
        rows = [check.as_row() for check in CASES[name](settings)]
        title = (CASES[name].__doc__ or "").splitlines()[0]
        values[name] = {"title": title, "checks": rows, "batches_divided_by": shrink}
        path = write_result(out, name, values[name])
        if not json:
            show_checks(title, rows)
            console.out.print(str(path), soft_wrap=True)
    if json:
        console.print_json(values)


@bench_app.command()
def convolutions(out: Out = RESULTS, json: AsJson = False) -> None:
    """Compare convolution through Fourier transforms with PyTorch's own, layer by layer."""
    from torchcaps.bench.forms import time_convolutions
    from torchcaps.bench.steps import write_result

    rows = time_convolutions()
    tell(json, rows, show_convolutions, write_result(out, "convolutions", {"threads": 1, "rows": rows}))


@bench_app.command()
def malloc(rounds: Rounds = 5, out: Out = RESULTS, json: AsJson = False) -> None:
    """Compare processes with the tuned allocator and without it."""
    from torchcaps.bench.memory import compare_allocators
    from torchcaps.bench.steps import write_result

    jobs = compare_allocators(rounds)
    path = write_result(out, "malloc", {"rounds": rounds, "threads": 1, "jobs": jobs})
    tell(json, jobs, show_allocators, path)
