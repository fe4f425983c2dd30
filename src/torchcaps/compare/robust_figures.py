"""Pictures of how robust the models of a comparison are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure

from torchcaps.analysis.style import Theme
from torchcaps.compare.figures import Picture, draw
from torchcaps.compare.job import Comparison
from torchcaps.evaluate.curves import Results, affine_chart, attack_curves
from torchcaps.evaluate.overlap import can_draw_one
from torchcaps.evaluate.sheets import overlap_sheet
from torchcaps.models import Model
from torchcaps.train import load


def robust_pictures(comparison: Comparison) -> list[Picture]:
    """Accuracy against epsilon and against affine change, and overlaid digits drawn apart: what was measured."""
    pictures = []
    changed = _found(comparison, lambda found: found["tests"].get("affnist"))
    if changed:
        first = next(iter(changed.values()))[0]
        caption = (
            "How much accuracy is left when every image is changed by one factor alone; the middle is no change, and "
            f"the column 'affine' is for all factors at once. {first['images']} images: {first['about']}."
        )
        pictures.append(draw("Affine change", caption, lambda theme: affine_chart(changed), kind="svg"))
    attacked = _found(comparison, lambda found: found["attacked"])
    if attacked:
        first = next(iter(attacked.values()))[0]
        caption = (
            "How much accuracy is left when every pixel may be changed by epsilon towards a wrong answer; 0 is the "
            f"images as they are. {first['images']} test images, logits '{first['logits']}': a first look, not a proof."
        )
        pictures.append(
            draw(
                "Accuracy under attack",
                caption,
                lambda theme: attack_curves(attacked),
                kind="svg",
                warning=_warning(attacked),
            )
        )
    if _found(comparison, lambda found: found["tests"].get("multimnist")):
        pictures += _apart(comparison)
    return pictures


def _found(comparison: Comparison, pick: Callable[[dict[str, Any]], Any]) -> Results:
    """One kind of result by label, of the models that have it for every seed."""
    picked = {
        label: [pick(result["robustness"]) for result in results if "robustness" in result]
        for label, results in comparison.results.items()
    }
    return {label: each for label, each in picked.items() if each and all(each)}


def _warning(attacked: Results) -> str:
    """What the failed sanity checks say about which model."""
    said = [
        f"{label}: {warned['name']}, {warned['message']}."
        for label, runs in attacked.items()
        for warned in {each["name"]: each for run in runs for each in run["sanity"]}.values()
    ]
    return f"Not to be trusted as it stands. {' '.join(said)}" if said else ""


def _apart(comparison: Comparison) -> list[Picture]:
    """A sheet of overlaid digits for each model that can draw one digit alone."""
    caption = "Two overlaid digits, and each as the model draws it from its own capsule alone."
    pictures = []
    for label, runs in comparison.runs.items():
        model, data = load(runs[0].path), runs[0].config().data
        if can_draw_one(model):

            def paint(theme: Theme, model: Model = model, data: str = data) -> Figure:
                return overlap_sheet(model, data)

            pictures.append(draw(f"Overlaid digits apart, by {label}", caption, paint))
    return pictures
