"""torchcaps models, routings, components and their kinds, attacks, weights and doctor"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from torchcaps.cli import console
from torchcaps.cli.options import AsJson, Plugin, complete


def models_command(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Show all settings of this model with default and meaning.  [default: list all models]",
            autocompletion=complete("model"),
        ),
    ] = None,
    plugin: Plugin = None,
    json: AsJson = False,
) -> None:
    """List models with parameter counts, or the settings of one.

    Parameters are counted in both sizes, for the paper's image shape and ten classes.
    """
    from torchcaps.models.registry import model_rows

    if name is not None:
        _print_settings(name, json)
        return
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


def _print_settings(name: str, json: bool) -> None:
    from torchcaps.models.registry import models, setting_rows

    rows = setting_rows(name)
    if json:
        console.print_json([asdict(row) for row in rows])
        return
    record, first = models.get(name), rows[0]
    console.print_paragraph(f"{name}: {record.description} (paper: {record.paper})", indent=0)
    console.print_paragraph(f"Change a setting with --set, e.g. --set {first.name}={first.default}.", indent=0)
    for row in rows:
        paper = f"; in paper size: {row.paper}" if row.paper is not None else ""
        console.out.print(f"{row.name}  [default: {row.default}{paper}]", soft_wrap=True, markup=False)
        console.print_paragraph(row.meaning, indent=4)


def routings_command(plugin: Plugin = None, json: AsJson = False) -> None:
    """List routings with their parameter counts.

    Parameters are counted in the class layer of a laptop-size CapsNet.
    """
    from torchcaps.models.registry import routing_rows

    rows = routing_rows()
    if json:
        console.print_json([asdict(row) for row in rows])
        return
    cells = [(row.name, row.paper, row.description, row.needs, f"{row.parameters:,}") for row in rows]
    console.print_table("Routings", ("name", "paper", "description", "needs", "parameters"), cells, numbers=1)


def components_command(plugin: Plugin = None, json: AsJson = False) -> None:
    """List transforms, losses, optimizers and other components."""
    _list_components(tuple(COMPONENTS), json)


def losses_command(plugin: Plugin = None, json: AsJson = False) -> None:
    """List loss functions."""
    _list_components(("loss",), json)


def optimizers_command(json: AsJson = False) -> None:
    """List optimizers."""
    _list_components(("optimizer",), json)


def schedules_command(json: AsJson = False) -> None:
    """List learning rate schedules, and how they are written."""
    _list_components(("schedule",), json)


# Title of the listing of each kind.
COMPONENTS = {
    "transform": "Transforms",
    "nonlinearity": "Nonlinearities",
    "loss": "Losses",
    "optimizer": "Optimizers",
    "schedule": "Learning rate schedules",
}


def _list_components(kinds: Sequence[str], json: bool) -> None:
    from torchcaps.layers import nonlinearities, transforms
    from torchcaps.losses import losses
    from torchcaps.train.optimizers import SCHEDULES, optimizers

    rows = [
        {
            "kind": registry.kind,
            "name": record.name,
            "paper": getattr(record, "paper", ""),
            "description": record.description,
        }
        for registry in (transforms, nonlinearities, losses, optimizers)
        for record in registry
    ]
    rows += [{"kind": "schedule", "name": name, "paper": "", "description": text} for name, text in SCHEDULES.items()]
    rows = [row for row in rows if row["kind"] in kinds]
    if json:
        console.print_json(rows)
        return
    for kind in kinds:
        same = [row for row in rows if row["kind"] == kind]
        columns = [name for name in ("name", "paper", "description") if any(row[name] for row in same)]
        console.print_table(COMPONENTS[kind], columns, [[row[name] for name in columns] for row in same])


def attacks_command(plugin: Plugin = None, json: AsJson = False) -> None:
    """List attacks with their norms and requirements."""
    from torchcaps.attacks import attacks

    fields = ("name", "paper", "description", "norms", "white_box", "targeted", "needs_source", "extra")
    rows = [{field: getattr(record, field) for field in fields} for record in attacks]
    if json:
        console.print_json(rows)
        return
    cells = [(row["name"], row["paper"], row["description"], ", ".join(row["norms"]), _needs(row)) for row in rows]
    console.print_table("Attacks", ("name", "paper", "description", "norms", "needs"), cells)


def _needs(row: dict[str, Any]) -> str:
    needs = {
        "gradients": row["white_box"],
        "another trained model": row["needs_source"],
        f"extra '{row['extra']}': pip install -e '.[{row['extra']}]'": row["extra"],
    }
    return ", ".join(need for need, needed in needs.items() if needed)


def weights_command(
    name: Annotated[
        str | None,
        typer.Argument(help="Show the card of this network.  [default: list all]", autocompletion=complete("weights")),
    ] = None,
    json: AsJson = False,
) -> None:
    """List the shipped networks, or show the card of one."""
    from torchcaps.errors import unknown_name
    from torchcaps.pretrained.loading import weight_rows

    rows = {row["name"]: row for row in weight_rows()}
    if name is not None and name not in rows:
        raise unknown_name("shipped network", name, rows)
    if json:
        console.print_json(list(rows.values()) if name is None else rows[name])
    elif name is None:
        cells = [
            (
                row["name"],
                row["data"],
                f"{row['parameters']:,}",
                f"{row['test_accuracy']:.2%}",
                f"{row['bytes'] / 1e6:.1f}",
            )
            for row in rows.values()
        ]
        columns = ("name", "data", "parameters", "accuracy", "MB")
        console.print_table("Shipped networks", columns, cells, numbers=3)
    else:
        _print_card(name)


def _print_card(name: str) -> None:
    from torchcaps.pretrained.loading import load_trained
    from torchcaps.pretrained.model_card import model_card

    trained = load_trained(name)
    model, tag, digest = (trained.result[key] for key in ("model", "tag", "sha256"))
    line = f'torchcaps.create_model("{model}", pretrained="{tag}")'
    console.out.print(model_card(trained, load_with=line, sha256=digest), soft_wrap=True)


def doctor_command(json: AsJson = False) -> None:
    """Check the installation and suggest fixes.

    Shows versions, devices, kernels in use, datasets, disk space, and what to do about problems.
    """
    from torchcaps.doctor import diagnose

    checks = diagnose()
    if json:
        console.print_json([asdict(check) for check in checks])
        return
    rows = [(check.topic, check.found, check.advice) for check in checks if not check.detail]
    console.print_table("Installation", ("topic", "found", "advice"), rows)
    problems = sum(bool(check.advice) for check in checks)
    plural = "s" if problems > 1 else ""
    console.out.print(f"{problems} problem{plural}; see the last column." if problems else "No problems found.")
