"""torchcaps models, torchcaps routings and torchcaps attacks"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torchcaps.cli import console
from torchcaps.cli.settings import AsJson, Plugin


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


def attacks(json: AsJson = False) -> None:
    """List all attacks, with what bounds a perturbation and what they need."""
    from torchcaps.attacks import attacks as registered

    fields = ("name", "paper", "description", "norms", "white_box", "targeted", "needs_source", "extra")
    rows = [{field: getattr(record, field) for field in fields} for record in registered]
    if json:
        console.print_json(rows)
        return
    cells = [
        (row["name"], row["paper"], row["description"], ", ".join(row["norms"]), ", ".join(_needs(row))) for row in rows
    ]
    console.print_table("Attacks", ("name", "paper", "description", "norms", "needs"), cells)


def _needs(row: dict[str, Any]) -> list[str]:
    needs = {"gradients": row["white_box"], "another trained model": row["needs_source"], "extra": row["extra"]}
    return [f"torchcaps[{row['extra']}]" if need == "extra" else need for need, asked in needs.items() if asked]
