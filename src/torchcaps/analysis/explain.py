"""Run all explainers on a model and write their data, figures and an HTML page."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchcaps.analysis.explainers import (
    explain_alignment,
    explain_compactness,
    explain_couplings,
    explain_dead_capsules,
    explain_decoding,
    explain_dynamics,
    explain_entropy,
    explain_perturbation,
    explain_votes,
)
from torchcaps.analysis.explanation import ExplainInput, Explanation, sample_images, select_images
from torchcaps.analysis.style import dark_png, png_bytes, save_figure
from torchcaps.data import ImageSet
from torchcaps.environment import describe_environment
from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.files import write_json, write_text
from torchcaps.html import data_url, html_footer, html_list, html_page
from torchcaps.models import Model
from torchcaps.progress import progress_bar

# In the order of the page.
EXPLANATIONS: dict[str, Callable[[ExplainInput], Explanation]] = {
    "couplings": explain_couplings,
    "votes": explain_votes,
    "perturbation": explain_perturbation,
    "decoding": explain_decoding,
    "entropy": explain_entropy,
    "dead": explain_dead_capsules,
    "dynamics": explain_dynamics,
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
    paper: str = "",
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
        paper: the model's paper, whose perturbation range is used.
    """
    for name in only:
        if name not in EXPLANATIONS:
            raise unknown_name("explanation", name, EXPLANATIONS)
    model.eval()
    shown, taken = select_images(model, images, picture), sample_images(model, images, sample)
    inputs = ExplainInput(model, images.class_names, shown, taken, other, paper)
    report: dict[str, Any] = {
        "run": run,
        "title": title or type(model).__name__,
        "about": f"Shown: {', '.join(shown.names)}. Measured on {len(taken.images)} images.",
        "predictions": predictions(inputs),
        "explanations": {},
        "skipped": {},
    }
    dark: dict[str, bytes] = {}
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
                    dark[f"{file}.png"] = dark_png(figure)
                report["explanations"][name] = {
                    "finding": found.finding,
                    "sees": found.caption,
                    "data": found.data,
                    "files": [f"{file}.png" for file in found.figures],
                }
            advance(1)
    report["environment"] = describe_environment()
    write_json(folder / "explain.json", report)
    write_page(folder, report, shown.images, dark)
    return report


@torch.no_grad()
def predictions(inputs: ExplainInput) -> list[dict[str, Any]]:
    """Return the predicted classes of each image shown, their probabilities, and the true classes if they are known."""
    shown, names = inputs.shown, inputs.class_names
    ranked = inputs.model(shown.images).logits.softmax(1).sort(1, descending=True)
    found = []
    for number, name in enumerate(shown.names):
        true = shown.labels[number] if shown.labels else None
        order = [names[label] for label in ranked.indices[number, :TOP].tolist()]
        found.append(
            {
                "image": name,
                "prediction": "+".join(order[: len(true) if true else 1]),
                "true_label": "+".join(names[label] for label in true) if true else None,
                "correct": set(true) == set(ranked.indices[number, : len(true)].tolist()) if true else None,
                "probabilities": dict(zip(order, ranked.values[number].tolist(), strict=False)),
            }
        )
    return found


ARROW = "\N{RIGHTWARDS ARROW}"  # one character, so that no line ends within it
TOP = 3  # classes listed for an image
STYLE = """
.predictions { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: 1rem; margin: 1rem 0; }
.predictions figure { border: 1px solid var(--line); border-radius: 8px; padding: .7rem; margin: 0; }
.predictions img { width: 100%; image-rendering: pixelated; border-radius: 4px; }
.predictions b { color: var(--text); } .predictions .wrong { color: var(--warn); }
.predictions figcaption { font-size: .85rem; line-height: 1.4; overflow-wrap: anywhere; }
"""


def write_page(folder: Path, report: dict[str, Any], images: Tensor, dark: Mapping[str, bytes]) -> Path:
    """Write index.html: the images with their predictions, then the figures of the report, for light and dark pages."""
    title = f"Explanation of {report['title']}"
    parts = [f"<h1>{html.escape(title)}</h1>\n<p>{html.escape(report['about'])}</p>"]
    pairs = zip(images, report["predictions"], strict=True)
    parts.append(f"<div class='predictions'>{''.join(_prediction(image, each) for image, each in pairs)}</div>")
    parts += [_section(folder, name, each, dark) for name, each in report["explanations"].items()]
    if report["skipped"]:
        parts.append(f"<h2>Skipped</h2>\n{html_list(f'{name}: {why}' for name, why in report['skipped'].items())}")
    parts.append(html_footer(report["environment"]))
    write_text(folder / "index.html", html_page(title, "\n".join(parts), style=STYLE))
    return folder / "index.html"


def _prediction(image: Tensor, prediction: dict[str, Any]) -> str:
    answer = html.escape(prediction["prediction"])
    wrong = " class='wrong'" if prediction["correct"] is False else ""
    true = prediction["true_label"]
    lines = [f"<b{wrong}>Prediction: {answer}</b>", *([f"True label: {html.escape(true)}"] if true else [])]
    lines += [f"{html.escape(name)}: {share:.1%}" for name, share in prediction["probabilities"].items()]
    source = data_url(png_bytes(image))
    picture = f"<img alt='{html.escape(prediction['image'])}' src='{source}'>"
    return f"<figure>{picture}<figcaption>{'<br>'.join(lines)}</figcaption></figure>"


def _section(folder: Path, name: str, explanation: dict[str, Any], dark: Mapping[str, bytes]) -> str:
    figures = [
        f"<figure><picture><source media='(prefers-color-scheme: dark)' srcset='{data_url(dark[file])}'>"
        f"<img alt='{html.escape(file)}' src='{data_url((folder / file).read_bytes())}'></picture></figure>"
        for file in explanation["files"]
    ]
    return (
        f"<h2>{html.escape(name.capitalize())}</h2>\n<p>{html.escape(explanation['sees'])}</p>\n"
        f"<p><b>Finding:</b> {html.escape(explanation['finding']).replace('-&gt;', ARROW)}.</p>\n" + "\n".join(figures)
    )
