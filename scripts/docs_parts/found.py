"""Result files as rows that pages can choose from: nothing here is typed, and nothing is measured."""

from __future__ import annotations

import inspect
import re
import statistics
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from torchcaps.analysis.intervals import Interval, mean_interval, proportion_interval
from torchcaps.files import read_json
from torchcaps.models.registry import models
from torchcaps.reproduce.claims_text import table_label
from torchcaps.reproduce.competence import competence_gaps
from torchcaps.reproduce.results import Evidence, PaperEvidence, gather_results
from torchcaps.reproduce.spec import list_papers, load_spec
from torchcaps.reproduce.tables import format_published, format_value

Result = dict[str, Any]


@dataclass(frozen=True)
class Number:
    """A number of a paper's table as it was measured here."""

    paper: str
    table: str  # as the paper calls it
    name: str  # of the table in the spec
    row: str
    column: str
    model: str
    routing: str
    data: str  # trained on; may be a stand-in for the paper's
    profile: str
    ours: str
    published: str
    seeds: int
    competent: bool  # whether it may decide a claim: measured with the current settings on competent networks


@dataclass(frozen=True)
class Trial:
    """A network of the grid: all trained under one small budget."""

    label: str
    model: str
    routing: str
    accuracy: Interval  # in %, over the test images
    parameters: int
    images: int


def routing_of(model: str, options: Result) -> str:
    """Which routing a model has; none for a plain network."""
    if "routing" in options:
        return str(options["routing"])
    parameter = inspect.signature(models.get(model).build).parameters.get("routing")
    return str(parameter.default) if parameter else ""


@cache
def all_evidence(results: Path) -> dict[str, list[PaperEvidence]]:
    """What the results folder holds about each paper, by profile; read once for all pages."""
    return {paper: gather_results(load_spec(paper), results) for paper in list_papers()}


@cache
def numbers(results: Path) -> list[Number]:
    """Every number of a paper that was measured here on a trained network."""
    found = []
    for paper, profiles in all_evidence(results).items():
        for evidence in profiles:
            for path, each in evidence.cells.items():
                training = each.results[0].training if each.results else None
                if each.values and training and each.results[0].unit != "count":
                    competent = not each.outdated and not competence_gaps(path, evidence)
                    table = path.partition("/")[0]
                    found.append(_number(paper, table, evidence.profile, each, training, competent=competent))
    return found


def _number(paper: str, table: str, profile: str, each: Evidence, training: Result, *, competent: bool) -> Number:
    values, unit = list(each.values.values()), each.results[0].unit
    spread = f" ± {format_value(mean_interval(values).half_width, unit)}" if len(values) > 1 else ""
    return Number(
        paper,
        table_label(table),
        table,
        each.cell.row,
        each.cell.column,
        training["model"],
        routing_of(training["model"], training["options"]),
        training["data"],
        profile,
        f"{format_value(statistics.fmean(values), unit)}{spread} {unit}",
        format_published(each.cell.published) if each.cell.published is not None else "",
        len(values),
        competent,
    )


@cache
def trials(results: Path) -> list[Trial]:
    """The grid of models and routings, the most accurate first."""
    found = []
    for label, runs in grid(results).items():
        run, options = runs[0], dict(part.split("=") for part in label.partition(":")[2].split(",") if part)
        spread = proportion_interval([1.0], [run["test_accuracy"]], [run["test_images"]])
        percent = Interval(100 * run["test_accuracy"], 100 * spread.low, 100 * spread.high)
        routing = routing_of(run["model"], options)
        found.append(Trial(label, run["model"], routing, percent, run["parameters"], run["test_images"]))
    return sorted(found, key=lambda trial: -trial.accuracy.center)


def grid(results: Path) -> dict[str, list[Result]]:
    """The comparison of all models, as ``torchcaps compare --json`` gave it."""
    path = results / "mnist-grid.json"
    return dict(read_json(path)) if path.is_file() else {}


def grid_budget(results: Path) -> str:
    """What each network of the grid got, in words."""
    run = next(iter(grid(results).values()))[0]
    command = run["environment"]["command"]
    images, epochs = (re.search(rf"--{flag} (\d+)", command) for flag in ("train-images", "epochs"))
    assert images
    assert epochs
    passes = "once" if epochs[1] == "1" else f"{epochs[1]} times"
    seen = f"{int(images[1]):,} images of MNIST {passes}"
    return f"{run['size']} size, {seen}, seed {run['seed']}, {run['test_images']:,} test images"


def milliseconds(results: Path, *, size: str, task: str) -> dict[str, float]:
    """Median time of a batch on one thread, by model."""
    path = results / "bench" / "step.json"
    rows = read_json(path)["rows"] if path.is_file() else []
    return {
        row["model"]: 1000 * row["seconds"]["torchcaps"]["median"]
        for row in rows
        if (row["size"], row["task"], row["threads"]) == (size, task, 1)
    }


def attacked(results: Path) -> list[Result]:
    """Networks under affine change and attacks, as ``torchcaps evaluate`` wrote it."""
    path = results / "robustness" / "five" / "evaluation.json"
    return list(read_json(path)["runs"]) if path.is_file() else []
