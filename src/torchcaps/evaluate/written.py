"""What an evaluation leaves in a folder: one JSON file, and its figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchcaps.analysis.style import house_style, save_figure
from torchcaps.environment import describe_environment
from torchcaps.evaluate.acgan import GanSettings
from torchcaps.evaluate.curves import acgan_chart, affine_chart, attack_curves, history_curves
from torchcaps.evaluate.overlap import can_draw_one
from torchcaps.evaluate.sheets import acgan_sheet, overlap_sheet
from torchcaps.files import file_name, write_json
from torchcaps.train import load


def write_evaluation(folder: Path, evaluations: Sequence[dict[str, Any]]) -> list[Path]:
    """Write evaluation.json and the figures; the paths of all of them."""
    target = folder / "evaluation.json"
    write_json(target, {"runs": list(evaluations), "environment": describe_environment()})
    return [target, *_write_figures(folder, evaluations)]


def labels(evaluations: Sequence[dict[str, Any]]) -> list[str]:
    """A short name for each run: its folder's, or the whole path where two folders have the same name."""
    names = [Path(each["run"]).name for each in evaluations]
    return names if len(set(names)) == len(names) else [each["run"] for each in evaluations]


def _write_figures(folder: Path, evaluations: Sequence[dict[str, Any]]) -> list[Path]:
    named = list(zip(labels(evaluations), evaluations, strict=True))
    attacked = {label: [each["attacked"]] for label, each in named if each["attacked"]}
    changed = {label: [each["tests"]["affnist"]] for label, each in named if "affnist" in each["tests"]}
    learned = {
        label: found for label, found in attacked.items() if any("history" in row for row in found[0]["attacks"])
    }
    drawn = {label: [each["tests"]["acgan"]] for label, each in named if "acgan" in each["tests"]}
    written = []
    with house_style():
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
            if "multimnist" in each["tests"] and can_draw_one(model := load(each["run"])):
                written.append(folder / f"overlap-{file_name(label)}.png")
                save_figure(overlap_sheet(model, each["data"]), written[-1])
    return written
