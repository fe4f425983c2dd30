"""torchcaps bench, and bench step, memory, growth, claims, convolutions, malloc, data and learning"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchcaps.cli import bench_tables, console
from torchcaps.cli.options import AsJson, chosen_names, split_names
from torchcaps.cli.settings import parse_settings
from torchcaps.errors import TorchcapsError, unknown_name

if TYPE_CHECKING:
    from torchcaps.bench.workload import NetSpec

bench_app = typer.Typer()

RESULTS = Path("results/bench")
Models = Annotated[str, typer.Option(help="Comma-separated list of models, see 'torchcaps models'; or 'all'.")]
Sizes = Annotated[str, typer.Option("--size", help="Comma-separated list of sizes, 'paper' and 'laptop'.")]
Batch = Annotated[int, typer.Option(help="Batch size.", min=1)]
Threads = Annotated[str, typer.Option(help="Comma-separated list of thread counts.")]
Rounds = Annotated[int, typer.Option(help="Maximum number of rounds per comparison.", min=1)]
Seconds = Annotated[float, typer.Option(help="Time limit per comparison; at least three rounds always run.")]
Compile = Annotated[bool, typer.Option("--compile", help="Also measure torch.compile, which takes minutes.")]
Out = Annotated[Path, typer.Option(help="Directory for the result files.")]
ImageSize = Annotated[int | None, typer.Option(help="Side of the images.  [default: the paper's]", min=1)]
Options = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Setting of the models, e.g. 'routing=uniform'. Repeatable."),
]
Against = Annotated[
    str | None, typer.Option(metavar="REV", help="Compare with this commit instead, step by step on one thread.")
]


@bench_app.callback(invoke_without_command=True)
def bench_command(context: typer.Context, json: AsJson = False) -> None:
    """Measure speed and memory on this machine.

    Without a command: two laptop-size networks, in about a minute, without writing files.
    """
    if context.invoked_subcommand is not None:
        return
    from torchcaps.bench.steps import measure_memory, time_nets
    from torchcaps.bench.timing import TimingBudget

    nets = select_nets("capsnet,matrix-capsnet", "laptop", 8)
    steps, sizes = list(time_nets(nets, [1, 2], TimingBudget(5, 10.0))), list(measure_memory(nets))
    if json:
        console.print_json({"steps": steps, "memory": sizes})
        return
    bench_tables.print_steps(steps)
    bench_tables.print_memory(sizes)


@bench_app.command("step")
def step_command(
    models: Models = "all",
    size: Sizes = "paper,laptop",
    batch: Batch = 8,
    threads: Threads = "1,2",
    rounds: Rounds = 9,
    seconds: Seconds = 20.0,
    compile: Compile = False,
    image_size: ImageSize = None,
    options: Options = None,
    against: Against = None,
    out: Out = RESULTS,
    json: AsJson = False,
) -> None:
    """Time training steps and inference.

    Compares torchcaps with plain PyTorch, with the usual public implementation, and with the convolutions alone; or,
    with --against, this source tree with another commit of it.
    """
    from torchcaps.bench.steps import time_nets, write_rows
    from torchcaps.bench.timing import TimingBudget

    nets = select_nets(models, size, batch, image_size, options)
    if against is not None:
        from torchcaps.bench.against import compare_with_commit, merge_rows

        path = out / f"against-{against}.json"
        rows = []
        for row in compare_with_commit(against, nets, ("training", "inference"), TimingBudget(rounds, seconds)):
            rows.append(row)
            merge_rows(path, [row])
        print_result(json, rows, bench_tables.print_against, path)
        return
    counts, compiled = parse_threads(threads), can_compile(compile)
    # Compiling takes hours: sizes may be measured separately, each with a file of its own.
    name = f"step-compiled-{size.replace(',', '-')}" if compiled else "step"
    path, rows = write_rows(out, name, time_nets(nets, counts, TimingBudget(rounds, seconds), compiled=compiled))
    print_result(json, rows, bench_tables.print_steps, path)


@bench_app.command("memory")
def memory_command(
    models: Models = "all",
    size: Sizes = "paper,laptop",
    batch: Batch = 8,
    compile: Compile = False,
    out: Out = RESULTS,
    json: AsJson = False,
) -> None:
    """Measure the memory of a training step.

    Each implementation runs in a fresh process.
    """
    from torchcaps.bench.steps import measure_memory, write_rows

    nets = select_nets(models, size, batch)
    path, rows = write_rows(out, "memory", measure_memory(nets, compiled=can_compile(compile)))
    print_result(json, rows, bench_tables.print_memory, path)


@bench_app.command("growth")
def growth_command(
    models: Models = "capsnet,matrix-capsnet",
    rounds: Rounds = 5,
    seconds: Seconds = 60.0,
    out: Out = RESULTS,
    json: AsJson = False,
) -> None:
    """Measure how time and memory scale.

    Varies batch size, capsule types, routing iterations and image size; also writes a figure.
    """
    from torchcaps.bench.growth import draw_growth, measure_growth
    from torchcaps.bench.steps import write_measurement
    from torchcaps.bench.timing import TimingBudget

    for found in measure_growth(split_names(models), TimingBudget(rounds, seconds)):
        path = write_measurement(out, "growth", {"threads": 1, "models": found})
    draw_growth(found, out / "growth.svg")
    print_result(json, found, bench_tables.print_growth, path, out / "growth.svg")


@bench_app.command("claims")
def claims_command(
    cases: Annotated[list[str] | None, typer.Argument(help="Claims to check.  [default: all]")] = None,
    rounds: Rounds = 9,
    seconds: Seconds = 120.0,
    compile: Compile = False,
    shrink: Annotated[int, typer.Option(help="Divide all batch sizes, for a trial run.", min=1)] = 1,
    device: Annotated[str, typer.Option(help="'cpu', or 'cuda' to measure the GPU kernels instead.")] = "cpu",
    out: Out = RESULTS,
    json: AsJson = False,
) -> None:
    """Check the project's speed claims against their targets."""
    from torchcaps.bench.checks import ClaimSettings
    from torchcaps.bench.claims import CASES, GPU_CASES
    from torchcaps.bench.steps import write_measurement
    from torchcaps.bench.timing import TimingBudget

    if device != "cpu":
        check_gpu(device)
    known = CASES if device == "cpu" else GPU_CASES
    names = chosen_names(cases)
    for name in names:
        if name not in known:
            raise unknown_name("case", name, known)
    settings = ClaimSettings(TimingBudget(rounds, seconds), can_compile(compile), shrink, device)
    values: dict[str, Any] = {}
    for name in names or known:
        rows = [check.as_row() for check in known[name](settings)]
        title = (known[name].__doc__ or "").splitlines()[0]
        values[name] = {"title": title, "checks": rows, "batches_divided_by": shrink}
        path = write_measurement(out, name, values[name])
        if not json:
            bench_tables.print_claims(title, rows)
            console.out.print(str(path), soft_wrap=True)
    if json:
        console.print_json(values)


@bench_app.command("convolutions")
def convolutions_command(out: Out = RESULTS, json: AsJson = False) -> None:
    """Compare FFT convolution with PyTorch's, layer by layer."""
    from torchcaps.bench.steps import time_convolutions, write_measurement

    rows = time_convolutions()
    path = write_measurement(out, "convolutions", {"threads": 1, "rows": rows})
    print_result(json, rows, bench_tables.print_convolutions, path)


@bench_app.command("malloc")
def malloc_command(rounds: Rounds = 5, out: Out = RESULTS, json: AsJson = False) -> None:
    """Compare the tuned allocator with the system's default."""
    from torchcaps.bench.memory import compare_allocators
    from torchcaps.bench.steps import write_measurement

    jobs = compare_allocators(rounds)
    path = write_measurement(out, "malloc", {"rounds": rounds, "threads": 1, "jobs": jobs})
    print_result(json, jobs, bench_tables.print_allocators, path)


@bench_app.command("data")
def data_command(
    out: Annotated[Path, typer.Option(help="JSON file to write.")] = RESULTS / "data.json", json: AsJson = False
) -> None:
    """Measure data loading speed on one core."""
    from torchcaps.bench.datasets import measure_datasets
    from torchcaps.bench.steps import write_measurement

    rows = measure_datasets()
    write_measurement(out.parent, out.stem, {"threads": 1, "rows": rows})
    print_result(json, rows, bench_tables.print_data)


@bench_app.command("learning")
def learning_command(
    cases: Annotated[list[str] | None, typer.Argument(help="Cases to measure.  [default: all]")] = None,
    seeds: Annotated[int, typer.Option(help="Trainings of each recipe.", min=1)] = 3,
    train_images: Annotated[int | None, typer.Option(help="Use fewer training images, for a trial run.")] = None,
    out: Out = RESULTS,
    json: AsJson = False,
) -> None:
    """Count the images that training needs to a target.

    Trains with the old and the new recipe of each case. Trainings that the result file contains are not repeated, so an
    interrupted measurement can be continued. All cases take hours.
    """
    from torchcaps.bench.learning import CASES, draw_learning, measure_learning, read_learning, summarize_learning
    from torchcaps.bench.steps import write_measurement

    path = out / "learning.json"
    rows = read_learning(path)
    for found in measure_learning(chosen_names(cases) or CASES, seeds, known=rows, train_images=train_images):
        rows = found
        write_measurement(out, "learning", {"threads": 1, "rows": rows})
    draw_learning(rows, out / "learning.svg")
    print_result(json, summarize_learning(rows), bench_tables.print_learning, path, out / "learning.svg")


def select_nets(
    models_text: str, sizes: str, batch: int, image_size: int | None = None, options: list[str] | None = None
) -> list[NetSpec]:
    """The networks that the options name."""
    from torchcaps.bench.workload import NetSpec
    from torchcaps.models import models
    from torchcaps.models.registry import SIZES

    names = models.names() if models_text == "all" else [models.get(name).name for name in split_names(models_text)]
    for size in split_names(sizes):
        if size not in SIZES:
            raise unknown_name("size", size, SIZES)
    settings = {name: parse_settings(name, ",".join(options or ())) for name in names}
    for training, _ in settings.values():
        if training:
            raise TorchcapsError(f"--set takes settings of the models here, not of the training: {', '.join(training)}")
    return [
        NetSpec(name, size, batch, image_size, options=settings[name][1])
        for name in names
        for size in split_names(sizes)
    ]


def parse_threads(text: str) -> list[int]:
    """Thread counts from a comma-separated list."""
    if not all(part.isdigit() and int(part) for part in text.split(",")):
        raise TorchcapsError(
            f"--threads should be a comma-separated list of whole numbers above 0, such as 1,2; got '{text}'"
        )
    return [int(part) for part in text.split(",")]


def check_gpu(device: str) -> None:
    """Check that torch can use a GPU."""
    import torch

    number = device.removeprefix("cuda:")
    if device != "cuda" and not (device.startswith("cuda:") and number.isdigit()):
        raise TorchcapsError(f"--device should be 'cpu', 'cuda' or a GPU such as 'cuda:1'; got '{device}'")
    found = torch.cuda.device_count()
    if (0 if device == "cuda" else int(number)) >= found:
        raise TorchcapsError(f"--device '{device}' cannot be used: torch finds {found} GPUs; run 'torchcaps doctor'")


def can_compile(requested: bool) -> bool:
    """Whether to measure torch.compile; prints the reason if it was requested and cannot run."""
    from torchcaps.bench.workload import why_not_compiled

    reason = why_not_compiled() if requested else None
    if reason:
        console.err.print(f"torch.compile is skipped: {reason}")
    return requested and not reason


def print_result(json: bool, rows: Any, print_rows: Callable[[Any], None], *written: Path) -> None:
    """Print measurements as JSON, or as a table followed by the files that were written."""
    if json:
        console.print_json(rows)
        return
    print_rows(rows)
    for path in written:
        console.out.print(str(path), soft_wrap=True)
