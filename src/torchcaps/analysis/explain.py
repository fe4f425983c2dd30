"""All explanations of a model in one call: a folder with data, figures and a page that shows them."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torchcaps.analysis.explainers import (
    explain_alignment,
    explain_compactness,
    explain_couplings,
    explain_dead,
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
    "dead": explain_dead,
    "compactness": explain_compactness,
    "alignment": explain_alignment,
}
SAMPLE = 60  # images: a laptop model is explained in under a minute on one core


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
    """Explain a model and write explain.json, the figures and index.html into a folder; returns what explain.json has.

    What does not apply to the model or the images is left out, with the reason under ``skipped``.

    Args:
        images: the set to measure on, such as the test split.
        picture: a picture file or an index into the images; None for one image of each class.
        only: names of EXPLANATIONS; none for all.
        other: a model whose decoder draws what this one holds.
        sample: number of images that compactness, alignment and dead capsules are measured on.
        title, run: what to call the model, and the folder it comes from.
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
        "about": f"Shown: {', '.join(shown.names)}. Measured over {len(taken.images)} images.",
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
                    "sees": found.sees,
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
    """Write index.html beside the figures that the report names."""
    title = f"What {report['title']} holds"
    parts = [f"<h1>{html.escape(title)}</h1>\n<p>{html.escape(report['about'])}</p>"]
    parts += [_section(folder, name, each) for name, each in report["explanations"].items()]
    if report["skipped"]:
        parts.append(f"<h2>Left out</h2>\n{html_list(f'{name}: {why}' for name, why in report['skipped'].items())}")
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
        f"<p><b>Found:</b> {html.escape(explanation['finding'])}.</p>\n" + "\n".join(figures)
    )
