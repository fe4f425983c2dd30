"""torchcaps bench, and bench step | memory | growth | claims | convolutions | malloc | data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchcaps.cli import console
from torchcaps.cli.bench_tables import (
    show_allocators,
    show_checks,
    show_convolutions,
    show_growth,
    show_memory,
    show_steps,
)
from torchcaps.cli.data import bench_data_command
from torchcaps.errors import TorchcapsError, unknown_name

if TYPE_CHECKING:
    from torchcaps.bench.nets import Net
    from torchcaps.bench.timing import Budget

bench_app = typer.Typer(
    help="Measure speed and memory on this machine; without a command, a quick look at two networks."
)
bench_app.command("data")(bench_data_command)

Models = Annotated[str, typer.Option(help="Names with commas, see 'torchcaps models'; 'all' for every one.")]
Sizes = Annotated[str, typer.Option("--size", help="'paper', 'laptop' or both with a comma.")]
Batch = Annotated[int, typer.Option(help="Images at a time.", min=1)]
Threads = Annotated[str, typer.Option(help="Numbers of threads, with commas.")]
Rounds = Annotated[int, typer.Option(help="At most so many rounds of each comparison.", min=1)]
Seconds = Annotated[float, typer.Option(help="No new round of a comparison after so many, but three at least.")]
Compile = Annotated[bool, typer.Option("--compile", help="Also torch.compile, which takes minutes.")]
Out = Annotated[Path, typer.Option(help="Folder for the result files.")]
RESULTS = Path("results/bench")


@bench_app.callback(invoke_without_command=True)
def quick(context: typer.Context) -> None:
    """Measure speed and memory; without a command, two laptop networks in a minute, and nothing is written."""
    if context.invoked_subcommand is not None:
        return
    from torchcaps.bench.steps import time_nets, weigh_nets

    nets, budget = choose("capsnet,matrix-capsnet", "laptop", 8), make_budget(5, 10.0)
    show_steps(list(time_nets(nets, numbers("1,2"), budget)))
    show_memory(list(weigh_nets(nets)))


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
) -> None:
    """Time training steps and inference in all forms: ours, plain, as public code writes it, convolutions alone."""
    from torchcaps.bench.results import write_rows
    from torchcaps.bench.steps import time_nets

    nets, budget, compiled = choose(models, size, batch), make_budget(rounds, seconds), can_compile(compile)
    # Compiling takes hours: a size may be measured alone, and nothing else should wait for it.
    name = f"step-compiled-{size.replace(',', '-')}" if compiled else "step"
    path, rows = write_rows(out, name, time_nets(nets, numbers(threads), budget, compiled=compiled))
    show_steps(rows)
    console.out.print(str(path))


@bench_app.command()
def memory(
    models: Models = "all",
    size: Sizes = "paper,laptop",
    batch: Batch = 8,
    compile: Compile = False,
    out: Out = RESULTS,
) -> None:
    """Weigh a training step in all forms, each in a fresh process."""
    from torchcaps.bench.results import write_rows
    from torchcaps.bench.steps import weigh_nets

    path, rows = write_rows(out, "memory", weigh_nets(choose(models, size, batch), compiled=can_compile(compile)))
    show_memory(rows)
    console.out.print(str(path))


@bench_app.command()
def growth(
    models: Models = "capsnet,matrix-capsnet", rounds: Rounds = 5, seconds: Seconds = 60.0, out: Out = RESULTS
) -> None:
    """Measure how time and memory grow with batch, types, iterations and image size; also as a picture."""
    from torchcaps.bench.growth import measure_growth
    from torchcaps.bench.growth_plot import draw_growth
    from torchcaps.bench.results import write_result

    for found in measure_growth(models.split(","), make_budget(rounds, seconds)):
        path = write_result(out, "growth", {"threads": 1, "models": found})
    show_growth(found)
    console.out.print(str(path))
    draw_growth(found, out / "growth.svg")


@bench_app.command()
def claims(
    cases: Annotated[list[str] | None, typer.Argument(help="Which ones; all if none is named.")] = None,
    rounds: Rounds = 9,
    seconds: Seconds = 120.0,
    compile: Compile = False,
    shrink: Annotated[int, typer.Option(help="Divide all batches, to try it out; it then counts for nothing.")] = 1,
    out: Out = RESULTS,
) -> None:
    """Check what the project claims about its speed: measured, target, met or not."""
    from torchcaps.bench.cases import CASES
    from torchcaps.bench.claims import Settings
    from torchcaps.bench.results import write_result

    for name in cases or ():
        if name not in CASES:
            raise unknown_name("case", name, CASES)
    settings = Settings(make_budget(rounds, seconds), can_compile(compile), shrink)
    for name in cases or CASES:
        rows = [check.as_row() for check in CASES[name](settings)]
        title = (CASES[name].__doc__ or "").splitlines()[0]
        show_checks(title, rows)
        values = {"title": title, "checks": rows, "batches_divided_by": shrink}
        console.out.print(str(write_result(out, name, values)))


@bench_app.command()
def convolutions(out: Out = RESULTS) -> None:
    """Compare convolution through Fourier transforms with PyTorch's own, layer by layer."""
    from torchcaps.bench.convolutions import time_convolutions
    from torchcaps.bench.results import write_result

    rows = time_convolutions()
    show_convolutions(rows)
    console.out.print(str(write_result(out, "convolutions", {"threads": 1, "rows": rows})))


@bench_app.command()
def malloc(rounds: Rounds = 5, out: Out = RESULTS) -> None:
    """Compare processes with the tuned allocator and without it."""
    from torchcaps.bench.allocator import compare_allocators
    from torchcaps.bench.results import write_result

    jobs = compare_allocators(rounds)
    show_allocators(jobs)
    console.out.print(str(write_result(out, "malloc", {"rounds": rounds, "threads": 1, "jobs": jobs})))


def choose(models_text: str, sizes: str, batch: int) -> list[Net]:
    """The networks that the flags name."""
    from torchcaps.bench.nets import Net
    from torchcaps.models import models
    from torchcaps.models.registry import SIZES

    names = models.names() if models_text == "all" else [models.get(name).name for name in models_text.split(",")]
    for size in sizes.split(","):
        if size not in SIZES:
            raise unknown_name("size", size, SIZES)
    return [Net(name, size, batch) for name in names for size in sizes.split(",")]


def numbers(text: str) -> list[int]:
    """Numbers of threads from "1,2"."""
    if not all(part.isdigit() and int(part) for part in text.split(",")):
        raise TorchcapsError(f"--threads takes whole numbers above 0 with commas between, such as 1,2; got '{text}'")
    return [int(part) for part in text.split(",")]


def make_budget(rounds: int, seconds: float) -> Budget:
    """Rounds and seconds of a comparison."""
    from torchcaps.bench.timing import Budget

    return Budget(rounds, seconds)


def can_compile(asked: bool) -> bool:
    """Whether to measure torch.compile; says why not, if it was asked for and cannot."""
    from torchcaps.bench.forms import why_not_compiled

    reason = why_not_compiled() if asked else None
    if reason:
        console.err.print(f"torch.compile is left out: {reason}")
    return asked and not reason
