"""The report of an evaluation: a JSON file, figures, and a table with notes for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchcaps.analysis.style import figure_style, save_figure
from torchcaps.environment import describe_environment
from torchcaps.evaluate.acgan import GanSettings
from torchcaps.evaluate.affine import VARIANTS
from torchcaps.evaluate.figures import (
    acgan_chart,
    acgan_sheet,
    affine_chart,
    attack_curves,
    history_curves,
    overlap_sheet,
)
from torchcaps.evaluate.overlap import has_conditional_decoder
from torchcaps.files import file_name, write_json
from torchcaps.train import load


def save_evaluation(folder: Path, evaluations: Sequence[dict[str, Any]]) -> list[Path]:
    """Write evaluation.json and the figures; return their paths."""
    target = folder / "evaluation.json"
    write_json(target, {"runs": list(evaluations), "environment": describe_environment()})
    return [target, *_save_figures(folder, evaluations)]


def run_labels(evaluations: Sequence[dict[str, Any]]) -> list[str]:
    """Return a label for each run: the name of its folder, or the whole path if two folders have the same name."""
    names = [Path(each["run"]).name for each in evaluations]
    return names if len(set(names)) == len(names) else [each["run"] for each in evaluations]


def _save_figures(folder: Path, evaluations: Sequence[dict[str, Any]]) -> list[Path]:
    named = list(zip(run_labels(evaluations), evaluations, strict=True))
    attacked = {label: [each["attacked"]] for label, each in named if each["attacked"]}
    # All versions of affNIST have the same curves, since those show upright images under one factor.
    changed = {
        label: [each["tests"][version]]
        for label, each in named
        for version in reversed(VARIANTS)
        if version in each["tests"]
    }
    learned = {
        label: found for label, found in attacked.items() if any("history" in row for row in found[0]["attacks"])
    }
    drawn = {label: [each["tests"]["acgan"]] for label, each in named if "acgan" in each["tests"]}
    written = []
    with figure_style():
        for name, results, chart in (
            ("attacks", attacked, attack_curves),
            ("iterations", learned, history_curves),
            ("affine", changed, affine_chart),
            ("acgan", drawn, acgan_chart),
        ):
            if results:
                figure = chart(results)
                written += [folder / f"{name}.svg", folder / f"{name}.png"]
                for path in written[-2:]:
                    save_figure(figure, path)
        if drawn:
            first = next(iter(drawn.values()))[0]
            written.append(folder / "acgan-images.png")
            save_figure(acgan_sheet(GanSettings(**first["settings"]), len(first["error_by_epoch"])), written[-1])
        for label, each in named:
            if "multimnist" in each["tests"] and has_conditional_decoder(model := load(each["run"])):
                written.append(folder / f"overlap-{file_name(label)}.png")
                save_figure(overlap_sheet(model, each["data"]), written[-1])
    return written


def summary_table(evaluations: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return column titles and rows: a row for each test and attack of a run, a column for each epsilon, in percent.

    ``accuracy`` is the accuracy on clean images.
    """
    attacked = [each["attacked"] for each in evaluations if each["attacked"]]
    epsilons = sorted({row["epsilon"] for each in attacked for row in each["attacks"]})
    titles = ["run", "test", "accuracy", *(f"{epsilon:.3g}" for epsilon in epsilons), *(["sanity"] if attacked else [])]
    rows = []
    for label, each in zip(run_labels(evaluations), evaluations, strict=True):
        lines = [line for name, result in each["tests"].items() for line in _test_lines(name, result)]
        lines += _attack_lines(each["attacked"], epsilons) if each["attacked"] else []
        filled = [line + [""] * (len(titles) - 1 - len(line)) for line in lines]
        rows += [[label if not number else "", *line] for number, line in enumerate(filled)]
    return titles, rows


def notes(evaluations: Sequence[dict[str, Any]]) -> list[str]:
    """Return the notes to the table: how it was measured, failed sanity checks, and tests that do not apply."""
    lines: dict[str, None] = {}  # an ordered set: runs often share a note
    refused: dict[str, list[str]] = {}
    for label, each in zip(run_labels(evaluations), evaluations, strict=True):
        for result in each["tests"].values():
            if "about" in result:
                lines[f"{result['name']}: {result['about']}, {result['images']:,} images"] = None
            if result.get("drawing_error") is not None:
                compared = (
                    f"{result['error_of_image']:.4f} for the whole image, {result['error_of_black']:.4f} for black"
                )
                lines[
                    f"{label}: reconstruction of each digit, squared error {result['drawing_error']:.4f} ({compared})"
                ] = None
        if each["attacked"]:
            found = each["attacked"]
            lines[f"attacks: {found['images']:,} test images, logits '{found['logits']}'"] = None
            lines |= {f"{label}: {warned['name']}: {warned['message']}": None for warned in found["sanity"]}
        for name, reason in each["refused"].items():
            refused.setdefault(f"no {name}: {reason}", []).append(label)
    return [*lines, *(f"{', '.join(names)}: {reason}" for reason, names in refused.items())]


def failed_checks(attacked: dict[str, Any]) -> str:
    """Return the names of the failed sanity checks, comma-separated; empty if all passed."""
    return ", ".join(dict.fromkeys(warned["name"] for warned in attacked["sanity"]))


def _attack_lines(attacked: dict[str, Any], epsilons: Sequence[float]) -> list[list[str]]:
    found: dict[str, dict[float, float]] = {}
    for row in attacked["attacks"]:
        found.setdefault(row["attack"], {})[row["epsilon"]] = row["accuracy"]
    sanity = failed_checks(attacked) or "passed"
    clean = ["test images", _percent(attacked["clean_accuracy"])]
    return [
        clean,
        *([name, "", *(_percent(points.get(each)) for each in epsilons), sanity] for name, points in found.items()),
    ]


def _test_lines(name: str, result: dict[str, Any]) -> list[list[str]]:
    if "novel_error" in result:
        return [[f"{name}, {kind}", _percent(1 - result[f"{kind}_error"])] for kind in ("familiar", "novel")]
    if "error_by_epoch" in result:
        return [[f"{name}, epoch {epoch}", _percent(1 - error)] for epoch, error in result["error_by_epoch"].items()]
    return [[result["name"], _percent(result["accuracy"])]]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"
