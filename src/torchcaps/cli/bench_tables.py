"""Flags that the commands of ``torchcaps bench`` share, what they mean, and how an answer is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchcaps.cli import console
from torchcaps.errors import TorchcapsError, unknown_name

# MERGED Tables of what ``torchcaps bench`` measures.
if TYPE_CHECKING:
    from torchcaps.bench.forms import Net
    from torchcaps.bench.timing import Budget

Models = Annotated[str, typer.Option(help="Names with commas, see 'torchcaps models'; 'all' for every one.")]
Sizes = Annotated[str, typer.Option("--size", help="'paper', 'laptop' or both with a comma.")]
Batch = Annotated[int, typer.Option(help="Images at a time.", min=1)]
Threads = Annotated[str, typer.Option(help="Numbers of threads, with commas.")]
Rounds = Annotated[int, typer.Option(help="At most so many rounds of each comparison.", min=1)]
Seconds = Annotated[float, typer.Option(help="No new round of a comparison after so many, but three at least.")]
Compile = Annotated[bool, typer.Option("--compile", help="Also torch.compile, which takes minutes.")]
Out = Annotated[Path, typer.Option(help="Folder for the result files.")]


def choose(models_text: str, sizes: str, batch: int) -> list[Net]:
    """The networks that the flags name."""
    from torchcaps.bench.forms import Net
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


def tell(json: bool, rows: Any, show: Callable[[Any], None], *written: Path) -> None:
    """What was measured, for a person or for another program, and to a person also where it was written."""
    if json:
        console.print_json(rows)
        return
    show(rows)
    for path in written:
        console.out.print(str(path), soft_wrap=True)


VERDICTS = {True: "yes", False: "NO", None: ""}


def show_steps(rows: list[dict[str, Any]]) -> None:
    """Milliseconds of each form: the median, and between which values half of the rounds lie."""
    forms = list(dict.fromkeys(form for row in rows for form in row["seconds"]))

    def cell(seconds: dict[str, float] | None) -> str:
        if seconds is None:
            return ""
        low, middle, high = (1000 * seconds[key] for key in ("lower_quartile", "median", "upper_quartile"))
        return f"{middle:.1f} ({low:.1f} to {high:.1f})"

    table = [
        (
            f"{row['model']}, {row['size']}",
            row["task"],
            str(row["batch"]),
            str(row["threads"]),
            *(cell(row["seconds"].get(form)) for form in forms),
        )
        for row in rows
    ]
    console.print_table("Milliseconds", ("model", "task", "batch", "threads", *forms), table, numbers=len(forms))


def show_memory(rows: list[dict[str, Any]]) -> None:
    """Megabytes of each form: activations, and the peak."""
    forms = list(dict.fromkeys(form for row in rows for form in row["bytes"]))

    def cell(sizes: dict[str, int] | None) -> str:
        return "" if sizes is None else f"{sizes['activations'] / 1e6:.1f}, {sizes['peak'] / 1e6:.1f}"

    table = [
        (f"{row['model']}, {row['size']}", str(row["batch"]), *(cell(row["bytes"].get(form)) for form in forms))
        for row in rows
    ]
    title = "Memory of a training step, MB: activations, peak"
    console.print_table(title, ("model", "batch", *forms), table, numbers=len(forms))


def show_growth(models: dict[str, Any]) -> None:
    """The fitted exponents of each model, axis and form."""
    rows = [
        (model, title, form, f"{axis['values'][0]} to {axis['values'][-1]}", *(f"{value:.2f}" for value in exponents))
        for model, axes in models.items()
        for title, axis in axes.items()
        for form in axis["seconds"]
        for exponents in [(axis["seconds"][form]["exponent"], *axis["bytes"][form]["exponents"].values())]
    ]
    columns = ("model", "grows with", "form", "from", "time", "activations", "peak", "process")
    console.print_table("Exponents of growth", columns, rows, numbers=4)


def show_checks(title: str, rows: list[dict[str, Any]]) -> None:
    """What was claimed, what was measured, and whether it is met."""

    def figure(value: float | None) -> str:
        return "not measured" if value is None else f"{value:.3g}"

    table = [
        (row["what"], figure(row["measured"]), row["target"], VERDICTS[row["met"]], row.get("note", "")) for row in rows
    ]
    console.print_table(title, ("what", "measured", "target", "met", "note"), table)


def show_allocators(jobs: dict[str, dict[str, float]]) -> None:
    """Each job with and without the tuned allocator."""
    rows = [
        (name, *(f"{1000 * job[key]:.1f}" for key in ("plain_seconds", "tuned_seconds")), f"{job['ratio']:.2f}")
        for name, job in jobs.items()
    ]
    console.print_table("Keeping freed memory", ("job", "as it comes, ms", "tuned, ms", "ratio"), rows, numbers=3)


def show_convolutions(rows: list[dict[str, Any]]) -> None:
    """Both forms of each layer, batch and mode, and their ratio."""
    table = [
        (
            row["layer"],
            row["mode"],
            str(row["batch"]),
            *(f"{1000 * row['seconds'][form]:.1f}" for form in ("pytorch", "spectral")),
            f"{row['ratio']:.2f}",
        )
        for row in rows
    ]
    columns = ("layer", "for", "batch", "PyTorch, ms", "Fourier, ms", "ratio")
    console.print_table("Convolutions on one thread", columns, table, numbers=4)
