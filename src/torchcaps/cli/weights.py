"""torchcaps weights"""

from __future__ import annotations

from typing import Annotated

import typer

from torchcaps.cli import console
from torchcaps.cli.settings import AsJson


def weights(
    name: Annotated[str | None, typer.Argument(help="Show the card of this one.  [default: list all]")] = None,
    json: AsJson = False,
) -> None:
    """List the networks that come with torchcaps; or show the card of one."""
    from torchcaps.errors import unknown_name
    from torchcaps.pretrained.table import weight_rows

    rows = {row["name"]: row for row in weight_rows()}
    if name is not None and name not in rows:
        raise unknown_name("shipped network", name, rows)
    if json:
        console.print_json(list(rows.values()) if name is None else rows[name])
    elif name is None:
        cells = [
            (
                each["name"],
                each["data"],
                f"{each['parameters']:,}",
                f"{each['test_accuracy']:.2%}",
                f"{each['test_images']:,}",
                f"{each['bytes'] / 1e6:.1f}",
            )
            for each in rows.values()
        ]
        columns = ("name", "data", "parameters", "accuracy", "of images", "MB")
        console.print_table("Shipped networks", columns, cells, numbers=4)
    else:
        _show_card(name)


def _show_card(name: str) -> None:
    from torchcaps.pretrained.model_card import model_card
    from torchcaps.pretrained.trained import open_trained

    trained = open_trained(name)
    model, tag, digest = (trained.result[key] for key in ("model", "tag", "sha256"))
    line = f'torchcaps.create_model("{model}", pretrained="{tag}")'
    console.out.print(model_card(trained, load_with=line, sha256=digest), soft_wrap=True)
