"""torchcaps models, torchcaps routings and torchcaps attacks"""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer

from torchcaps.cli import console
from torchcaps.cli.options import AsJson, Plugin
from torchcaps.cli.reproduce import Out, Runs


# MERGED torchcaps papers
# MERGED torchcaps weights
# MERGED torchcaps doctor
def models(plugin: Plugin = None, json: AsJson = False) -> None:
    """List all models, with their parameters in both sizes for the paper's image and ten classes."""
    from torchcaps.models.registry import model_rows

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
    from torchcaps.models.registry import routing_rows

    rows = routing_rows()
    if json:
        console.print_json([asdict(row) for row in rows])
        return
    cells = [(row.name, row.paper, row.description, row.needs, f"{row.parameters:,}") for row in rows]
    console.print_table("Routings", ("name", "paper", "description", "needs", "parameters"), cells, numbers=1)


def attacks(plugin: Plugin = None, json: AsJson = False) -> None:
    """List all attacks, with their norms and requirements."""
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


def papers(
    out: Out = Path("results"),
    runs: Runs = Path("runs/reproduce"),
    json: AsJson = False,
) -> None:
    """List the papers' tables and figures: how many cells, how many of them are done, how long all of it takes."""
    from torchcaps.reproduce.estimate import format_duration, shipped_machine
    from torchcaps.reproduce.runner import Folders
    from torchcaps.reproduce.status import table_states

    states = table_states(Folders(out, runs))
    if json:
        console.print_json([asdict(state) for state in states])
        return
    for paper, tables in groupby(states, key=lambda state: state.paper):
        rows = []
        for state in tables:
            profiles = [
                f"{state.done[profile]}/{wanted}\n{format_duration(state.seconds[profile])}"
                for profile, wanted in state.wanted.items()
            ]
            rows.append((state.table, state.title, str(state.cells), *profiles))
        columns = ("table", "title", "cells", *states[0].wanted)
        console.print_table(paper, columns, rows, numbers=len(columns) - 2)
    console.out.print(
        "For each profile: cells times seeds that are done, and the time of all of them for one worker: by how fast "
        f"networks were here, else on {shipped_machine()}; without measures that were never taken here."
    )


def weights(
    name: Annotated[str | None, typer.Argument(help="Show the card of this one.  [default: list all]")] = None,
    json: AsJson = False,
) -> None:
    """List the networks that come with torchcaps; or show the card of one."""
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
    from torchcaps.pretrained.loading import load_trained
    from torchcaps.pretrained.model_card import model_card

    trained = load_trained(name)
    model, tag, digest = (trained.result[key] for key in ("model", "tag", "sha256"))
    line = f'torchcaps.create_model("{model}", pretrained="{tag}")'
    console.out.print(model_card(trained, load_with=line, sha256=digest), soft_wrap=True)


def doctor(json: AsJson = False) -> None:
    """Show what this installation can do: versions, devices, kernels in use, data found, and remedies for trouble."""
    from torchcaps.doctor import examine

    findings = examine()
    if json:
        console.print_json([asdict(finding) for finding in findings])
        return
    shown = [finding for finding in findings if not finding.detail]
    rows = [(finding.topic, finding.found, finding.advice) for finding in shown]
    console.print_table("This installation", ("what", "found", "what to do"), rows)
    problems = sum(bool(finding.advice) for finding in findings)
    console.out.print(f"{problems} to look at, in the last column." if problems else "Nothing is amiss.")
