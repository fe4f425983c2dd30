"""torchcaps models, and what else there is to list."""

from __future__ import annotations

from typing import Annotated

import typer

from torchcaps.cli import console


def models(json: Annotated[bool, typer.Option(help="Print as JSON.")] = False) -> None:
    """List all models: paper, parameters in both sizes at 28x28 grey and 10 classes, what they are."""
    import torch

    from torchcaps.models import create_model
    from torchcaps.models import models as registry
    from torchcaps.models.registry import SIZES

    rows = []
    for record in registry:
        with torch.device("meta"):  # shapes without memory
            counts = [sum(p.numel() for p in create_model(record.name, size=size).parameters()) for size in SIZES]
        rows.append(
            {
                "name": record.name,
                "paper": record.paper,
                "description": record.description,
                **dict(zip(SIZES, counts, strict=True)),
            }
        )
    if json:
        console.print_json(rows)
        return
    table = [(str(r["name"]), str(r["paper"]), str(r["description"]), f"{r['paper']}", f"{r['laptop']}") for r in rows]
    console.print_table("Models", ("name", "paper", "description", "paper size", "laptop size"), table, numbers=2)
