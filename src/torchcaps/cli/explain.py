"""torchcaps explain"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli import console
from torchcaps.cli.completion import complete
from torchcaps.cli.settings import Plugin


def explain(
    run: Annotated[Path, typer.Argument(help="Folder of a trained run.")],
    image: Annotated[
        str | None, typer.Argument(help="A picture file, or the number of a test image.  [default: one of each class]")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results.  [default: RUN/explain]")] = None,
    only: Annotated[str | None, typer.Option(help="Names behind commas, such as 'couplings,votes'.")] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="Take test images of this dataset.  [default: the run's]", autocompletion=complete("dataset")
        ),
    ] = None,
    decoder: Annotated[Path | None, typer.Option(help="Also draw with the decoder of this run.")] = None,
    plugin: Plugin = None,
    json: Annotated[bool, typer.Option(help="Print what explain.json has.")] = False,
) -> None:
    """Look into a trained model: what its capsules hold, which places voted, what it found out about itself."""
    from torchcaps.analysis.explain import explain as explain_model
    from torchcaps.data import load_dataset
    from torchcaps.train import load, open_run

    opened = open_run(run)
    folder = out or opened.output("explain")
    config = opened.config()
    if data is None:
        opened.check_dataset()
    title = f"{config.model} on {data or config.data}"
    report = explain_model(
        load(run),
        load_dataset(data or config.data, "test"),
        folder,
        picture=image,
        only=[name.strip() for name in only.split(",")] if only else (),
        other=load(decoder) if decoder else None,
        title=title,
        run=str(run),
    )
    if json:
        console.print_json(report)
        return
    rows = [
        (file, each["finding"] if number == 0 else "")
        for each in report["explanations"].values()
        for number, file in enumerate(each["files"])
    ]
    rows += [(f"{name}: left out", reason) for name, reason in report["skipped"].items()]
    console.print_table(title, ("file", "finding"), rows)
    console.out.print(f"Page: {folder / 'index.html'}")
