"""Flags that the commands of ``torchcaps bench`` share, what they mean, and how an answer is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchcaps.cli import console
from torchcaps.errors import TorchcapsError, unknown_name

if TYPE_CHECKING:
    from torchcaps.bench.nets import Net
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


def tell(json: bool, rows: Any, show: Callable[[Any], None], *written: Path) -> None:
    """What was measured, for a person or for another program, and to a person also where it was written."""
    if json:
        console.print_json(rows)
        return
    show(rows)
    for path in written:
        console.out.print(str(path), soft_wrap=True)
