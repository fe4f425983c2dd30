"""Run all explainers on a model and write their data, figures and an HTML page."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torchcaps.analysis.explainers import (
    explain_alignment,
    explain_compactness,
    explain_couplings,
    explain_dead_capsules,
    explain_decoding,
    explain_entropy,
    explain_perturbation,
    explain_votes,
)
from torchcaps.analysis.explanation import ExplainInput, Explanation, sample_images, select_images
from torchcaps.analysis.style import save_figure
from torchcaps.data import ImageSet
from torchcaps.environment import describe_environment
from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.files import write_json, write_text
from torchcaps.html import data_url, html_footer, html_list, html_page
from torchcaps.models import Model
from torchcaps.progress import progress_bar

# In the order of the page.
EXPLANATIONS: dict[str, Callable[[ExplainInput], Explanation]] = {
    "perturbation": explain_perturbation,
    "decoding": explain_decoding,
    "couplings": explain_couplings,
    "entropy": explain_entropy,
    "votes": explain_votes,
    "dead": explain_dead_capsules,
    "compactness": explain_compactness,
    "alignment": explain_alignment,
}
SAMPLE = 60  # images; explaining a laptop-size model takes less than a minute on one core


def explain(
    model: Model,
    images: ImageSet,
    folder: Path,
    *,
    picture: str | None = None,
    only: Sequence[str] = (),
    other: Model | None = None,
    sample: int = SAMPLE,
    title: str = "",
    run: str | None = None,
) -> dict[str, Any]:
    """Explain a model: write explain.json, figures and index.html to a folder. Returns the content of explain.json.

    Explanations that do not apply to the model or the images are listed under ``skipped`` with the reason.

    Args:
        images: the dataset to measure on, usually the test set.
        folder: where to write.
        picture: an image file or an index into ``images``; None for one image of each class.
        only: names of EXPLANATIONS; empty for all.
        other: a model whose decoder reconstructs the capsules of this one.
        sample: number of images for compactness, alignment and dead capsules.
        title: name of the model on the page.
        run: run directory of the model, for the record.
    """
    for name in only:
        if name not in EXPLANATIONS:
            raise unknown_name("explanation", name, EXPLANATIONS)
    model.eval()
    shown, taken = select_images(model, images, picture), sample_images(model, images, sample)
    inputs = ExplainInput(model, images.class_names, shown, taken, other)
    report: dict[str, Any] = {
        "run": run,
        "title": title or type(model).__name__,
        "about": f"Shown: {', '.join(shown.names)}. Measured on {len(taken.images)} images.",
        "explanations": {},
        "skipped": {},
    }
    chosen = [name for name in EXPLANATIONS if name in (only or EXPLANATIONS)]
    with progress_bar("explaining", len(chosen)) as advance:
        for name in chosen:
            try:
                found = EXPLANATIONS[name](inputs)
            except TorchcapsError as reason:
                report["skipped"][name] = str(reason)
            else:
                for file, figure in found.figures.items():
                    save_figure(figure, folder / f"{file}.png")
                report["explanations"][name] = {
                    "finding": found.finding,
                    "sees": found.caption,
                    "data": found.data,
                    "files": [f"{file}.png" for file in found.figures],
                }
            advance(1)
    report["environment"] = describe_environment()
    write_json(folder / "explain.json", report)
    write_page(folder, report)
    return report


STYLE = "img { background: white; border-radius: 4px; } figure { overflow-x: auto; }"


def write_page(folder: Path, report: dict[str, Any]) -> Path:
    """Write index.html, with the figures of the report embedded."""
    title = f"What {report['title']} holds"
    parts = [f"<h1>{html.escape(title)}</h1>\n<p>{html.escape(report['about'])}</p>"]
    parts += [_section(folder, name, each) for name, each in report["explanations"].items()]
    if report["skipped"]:
        parts.append(f"<h2>Skipped</h2>\n{html_list(f'{name}: {why}' for name, why in report['skipped'].items())}")
    parts.append(html_footer(report["environment"]))
    write_text(folder / "index.html", html_page(title, "\n".join(parts), style=STYLE))
    return folder / "index.html"


def _section(folder: Path, name: str, explanation: dict[str, Any]) -> str:
    figures = [
        f"<figure><img alt='{html.escape(file)}' src='{data_url((folder / file).read_bytes())}'></figure>"
        for file in explanation["files"]
    ]
    return (
        f"<h2>{html.escape(name.capitalize())}</h2>\n<p>{html.escape(explanation['sees'])}</p>\n"
        f"<p><b>Finding:</b> {html.escape(explanation['finding'])}.</p>\n" + "\n".join(figures)
    )
