"""torchcaps predict"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchcaps.cli import console
from torchcaps.cli.completion import complete_run
from torchcaps.cli.settings import AsJson, Plugin

LINES = 40  # pictures in the table: a longer one is for --csv


def predict(
    run: Annotated[
        str,
        typer.Argument(help="Folder of a trained run, or a name of 'torchcaps weights'.", autocompletion=complete_run),
    ],
    pictures: Annotated[Path, typer.Argument(help="A picture, or a folder of pictures.")],
    top: Annotated[int, typer.Option(help="How many classes to show for each picture.", min=1)] = 3,
    csv: Annotated[Path | None, typer.Option(help="Also write all probabilities into this file.")] = None,
    least_sure: Annotated[
        Path, typer.Option(help="Of several pictures, draw those with the least sure answers into this PNG file.")
    ] = Path("least-sure.png"),
    plugin: Plugin = None,
    json: AsJson = False,
) -> None:
    """Say what is on pictures, with the probability of each class; a broken file is named and the rest goes on."""
    from torchcaps.prediction import draw_least_sure, write_csv
    from torchcaps.prediction import predict as ask
    from torchcaps.pretrained.trained import open_trained

    model = open_trained(run).model
    found = ask(model, pictures)
    for problem in found.broken.values():
        console.warn(problem)
    drawn = draw_least_sure(model, found, least_sure) if len(found.answers) > 1 else 0
    if csv:
        write_csv(found, csv)
    if json:
        console.print_json(found.as_json())
        return
    count = min(top, len(found.class_names))
    rows = [
        (str(each.path), *(f"{name}: {share:.1%}" for name, share in found.top(each, count)))
        for each in found.answers[:LINES]
    ]
    places = ("answer", "second", "third", *(f"{place}th" for place in range(4, count + 1)))[:count]
    console.print_table(run, ("picture", *places), rows)
    if len(found.answers) > LINES:
        console.out.print(f"and {len(found.answers) - LINES} more: --csv FILE or --json gives all of them")
    if drawn:
        console.out.print(f"The {drawn} least sure: {least_sure}", soft_wrap=True)
    if csv:
        console.out.print(f"All probabilities: {csv}", soft_wrap=True)
