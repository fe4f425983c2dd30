"""torchcaps evaluate"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli import console
from torchcaps.cli.settings import Plugin


def evaluate(
    runs: Annotated[list[Path], typer.Argument(help="Folders of trained runs.")],
    plugin: Plugin = None,
    json: Annotated[bool, typer.Option(help="Print the results as JSON.")] = False,
) -> None:
    """Test trained models on images that took no part in training or selection."""
    from torchcaps.evaluate import evaluate_run
    from torchcaps.train import open_run

    results = [evaluate_run(run) for run in [open_run(path) for path in runs]]
    if json:
        console.print_json(results)
        return
    rows = [
        (
            str(path),
            result["model"],
            result["data"],
            f"{result['validation_accuracy']:.2%}",
            f"{result['test_accuracy']:.2%}",
        )
        for path, result in zip(runs, results, strict=True)
    ]
    console.print_table("Evaluation", ("run", "model", "data", "validation", "test"), rows, numbers=2)
