"""All explanations of a model in one call: a folder with data, figures and a page that shows them."""

from __future__ import annotations

import base64
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
from torchcaps.analysis.explanation import Explanation, Material, choose, take_some
from torchcaps.analysis.style import save_figure
from torchcaps.data import ImageSet
from torchcaps.environment import describe_environment
from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.files import write_json, write_text
from torchcaps.models import Model
from torchcaps.progress import progress_bar

# MERGED The page that shows all explanations: one HTML file that needs nothing else.
# In the order of the page.
EXPLANATIONS: dict[str, Callable[[Material], Explanation]] = {
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
    shown, taken = choose(model, images, picture), take_some(model, images, sample)
    material = Material(model, images.class_names, shown, taken, other)
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
                found = EXPLANATIONS[name](material)
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


STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 2rem 1rem 4rem; }
h1 { font-size: 1.7rem; margin: 0; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .3rem; }
figure { margin: 1rem 0; overflow-x: auto; }
img { max-width: 100%; height: auto; background: white; border-radius: 4px; }
p { margin: .3rem 0; }
footer { margin-top: 3rem; font-size: .85rem; opacity: .75; }
code { overflow-wrap: anywhere; }
"""


def write_page(folder: Path, report: dict[str, Any]) -> Path:
    """Write index.html beside the figures that the report names."""
    environment = report["environment"]
    sections = [_section(folder, name, each) for name, each in report["explanations"].items()]
    skipped = "".join(
        f"<li>{html.escape(name)}: {html.escape(reason)}</li>" for name, reason in report["skipped"].items()
    )
    title = f"What {html.escape(report['title'])} holds"
    page = (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>torchcaps: {title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        f"<p>{html.escape(report['about'])}</p>\n" + "\n".join(sections)
    )
    if skipped:
        page += f"\n<h2>Left out</h2>\n<ul>{skipped}</ul>"
    page += (
        f"\n<footer>Made by <code>{html.escape(environment['command'])}</code>, torch "
        f"{html.escape(str(environment['versions']['torch']))}, "
        f"commit {html.escape(str(environment['commit'])[:12])}.</footer>\n"
        "</body>\n</html>\n"
    )
    write_text(folder / "index.html", page)
    return folder / "index.html"


def _section(folder: Path, name: str, explanation: dict[str, Any]) -> str:
    figures = []
    for file in explanation["files"]:
        picture = base64.b64encode((folder / file).read_bytes()).decode()
        figures.append(f"<figure><img alt='{html.escape(file)}' src='data:image/png;base64,{picture}'></figure>")
    return (
        f"<h2>{html.escape(name.capitalize())}</h2>\n<p>{html.escape(explanation['sees'])}</p>\n"
        f"<p><b>Found:</b> {html.escape(explanation['finding'])}.</p>\n" + "\n".join(figures)
    )
