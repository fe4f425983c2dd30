"""One cell: its measure taken on trained runs, and what came out or went wrong as a file."""

from __future__ import annotations

import time
import traceback
from pathlib import Path
from typing import Any

import torch

from torchcaps.analysis.style import save_figure
from torchcaps.environment import describe_environment
from torchcaps.errors import TorchcapsError
from torchcaps.files import write_text
from torchcaps.reproduce.measures import Subject, measures
from torchcaps.reproduce.results import CellResult, write_result
from torchcaps.reproduce.work import Work
from torchcaps.train import RunFolder


def measure_cell(work: Work, trained: dict[str, RunFolder], results: Path, runs: Path) -> CellResult:
    """Take the measure of a cell and write its result; the cell's own run has the role ''."""
    own = trained.get("")
    others = {role: run for role, run in trained.items() if role}
    record = measures.get(work.measure)
    torch.manual_seed(work.seed)  # the same numbers, whether this process has trained before or not
    began = time.perf_counter()
    subject = Subject(own, others, work.seed, dict(work.settings), runs / "shared")
    measured = record.function(subject)
    seconds = time.perf_counter() - began
    path = work.result_file(results)
    picture = None
    if measured.picture is not None:  # before the result that names it
        picture = path.with_suffix(".png")
        save_figure(measured.picture, picture)
    run_result: dict[str, Any] = own.result() if own else {}
    result = CellResult(
        **_named(work),
        unit=record.unit,
        value=measured.value,
        images=measured.images,
        details=measured.details,
        warnings=(*_troubles(trained), *measured.warnings),
        picture=picture.name if picture else None,
        selection_split=run_result.get("selection_split"),
        training=own.config().model_dump(mode="json") if own else None,
        training_seconds=run_result.get("training_seconds"),
        seconds=seconds,
        environment=describe_environment(),
    )
    write_result(path, result)
    return result


def record_failure(work: Work, error: Exception, results: Path, runs: Path) -> CellResult:
    """Write why a cell has no result. What nobody foresaw is kept with its whole traceback, beside the runs."""
    sentence = str(error)
    path = work.result_file(results)
    if not isinstance(error, TorchcapsError):
        sentence = " ".join(f"{type(error).__name__}: {error}".split())
        name = f"{work.spec.paper}-{work.table}-{path.stem}.txt"
        write_text(runs / "errors" / name, "".join(traceback.format_exception(error)))
    unit = measures.get(work.measure).unit if work.measure in measures else ""
    result = CellResult(**_named(work), unit=unit, error=sentence, environment=describe_environment())
    write_result(path, result)
    return result


def _named(work: Work) -> dict[str, Any]:
    return {
        "paper": work.spec.paper,
        "table": work.table,
        "cell": work.name,
        "profile": work.profile,
        "seed": work.seed,
        "measure": work.measure,
        "published": work.cell.published,
        "fingerprint": work.fingerprint(),
    }


def _troubles(trained: dict[str, RunFolder]) -> list[str]:
    """A sentence for each run that ended before it was as good as it had to be, or that learned nothing."""
    found = [run.result("model", "validation_accuracy", "reached", "confusion") for run in trained.values()]
    unmatched = [
        f"{each['model']} reached {each['validation_accuracy']:.2%} of the images it is matched on, "
        f"not {each.get('stop_at_accuracy') or 0:.2%}: the training was too short"
        for each in found
        if each["reached"] is False
    ]
    dead = [
        f"{each['model']} gives the same answer to every test image: it did not learn, and its value says nothing"
        for each in found
        if sum(map(any, zip(*each["confusion"], strict=True))) == 1
    ]
    return unmatched + dead
