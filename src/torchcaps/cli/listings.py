"""torchcaps models and torchcaps routings"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from torchcaps.cli import console
from torchcaps.cli.settings import Plugin

AsJson = Annotated[bool, typer.Option(help="Print as JSON.")]


def models(plugin: Plugin = None, json: AsJson = False) -> None:
    """List all models, with their parameters in both sizes for the paper's image and ten classes."""
    from torchcaps.models.table import model_rows

    rows = model_rows()
    if json:
        console.print_json([asdict(row) for row in rows])
        return
    cells = [
        (
            row.name,
            row.paper,
            row.description,
            row.needs,
            row.image,
            f"{row.paper_parameters:,}",
            f"{row.laptop_parameters:,}",
        )
        for row in rows
    ]
    columns = ("name", "paper", "description", "needs", "image", "paper size", "laptop size")
    console.print_table("Models", columns, cells, numbers=3)


def routings(plugin: Plugin = None, json: AsJson = False) -> None:
    """List all routings, with the parameters they bring to the class layer of a laptop CapsNet."""
    from torchcaps.models.table import routing_rows

    rows = routing_rows()
    if json:
        console.print_json([asdict(row) for row in rows])
        return
    cells = [(row.name, row.paper, row.description, row.needs, f"{row.parameters:,}") for row in rows]
    console.print_table("Routings", ("name", "paper", "description", "needs", "parameters"), cells, numbers=1)
