"""The HTML report of a comparison: one file that loads nothing else."""

from __future__ import annotations

import html
from pathlib import Path

from torchcaps.compare.figures import (
    confusions,
    learning_curves,
    perturbations,
    reconstructions,
    robustness_figures,
)
from torchcaps.compare.job import ComparisonResults
from torchcaps.compare.own_images import is_own_images, summarize_images
from torchcaps.compare.table import COLUMNS, best_model, difference_sentences, robustness_columns, table_cells
from torchcaps.data.datasets.image_folder import display_name
from torchcaps.evaluate.clean import reached_target, test_images
from torchcaps.files import write_text
from torchcaps.html import ThemedFigure, html_cell, html_figure, html_footer, html_page, html_table
from torchcaps.train import load

MAX_SKIPPED_FILES = 10  # listed in the report


def write_report(comparison: ComparisonResults) -> Path:
    """Write report.html to the folder of the comparison and return its path."""
    target = comparison.path / "report.html"
    first = next(iter(comparison.runs.values()))[0].config()
    seeds = len(next(iter(comparison.results.values())))
    environment = next(iter(comparison.results.values()))[0]["environment"]
    budget = f"{first.train_images:,} images of the training set" if first.train_images else "the whole training set"
    summary = (
        f"Every model: {first.size} size, {budget}, {first.epochs} epoch{'s' if first.epochs > 1 else ''}, "
        f"{seeds} seed{'s' if seeds > 1 else ''}. {first.validation:.0%} of those images were held out for "
        f"validation and selected the checkpoint; the test set was not used for selection.{_match(comparison)}"
    )
    sections = "\n".join(map(html_figure, _figures(comparison)))
    title = f"Comparison on {display_name(first.data)}"
    body = (
        f"<h1>{html.escape(title)}</h1>\n<p>{summary}</p>\n"
        f"{_table(comparison)}\n{_own_images_section(first.data)}{sections}\n{html_footer(environment)}"
    )
    write_text(target, html_page(title, body))
    return target


def _figures(comparison: ComparisonResults) -> list[ThemedFigure]:
    first = {name: results[0] for name, results in comparison.results.items()}
    classes = load(next(iter(comparison.runs.values()))[0].path).class_names
    decoded = []
    for name, runs in comparison.runs.items():
        model, images = load(runs[0].path), test_images(runs[0].config())
        if model.decoder is not None:
            decoded += [reconstructions(name, model, images), perturbations(name, model, images)]
    return [learning_curves(comparison), *robustness_figures(comparison), *decoded, confusions(first, classes)]


def _match(comparison: ComparisonResults) -> str:
    """Say at which accuracy training was stopped, and which models never reached it; empty if there was no target."""
    stops = [run.config() for runs in comparison.runs.values() for run in runs if run.config().stop_at_accuracy]
    if not stops:
        return ""
    levels = sorted({f"{config.stop_at_accuracy:.2%}" for config in stops})
    missed = [name for name, results in comparison.results.items() if not reached_target(results)]
    where = stops[0].stop_on
    text = f" Training was stopped at an accuracy of {' and '.join(levels)} on the {where} images"
    text += "." if where == "validation" else ", which also selected the checkpoint."
    return text + (f" Not compared, because they never reached it: {html.escape(', '.join(missed))}." if missed else "")


def _own_images_section(data: str) -> str:
    """Describe the user's own images, with warnings; empty for a built-in dataset."""
    if not is_own_images(data):
        return ""
    summary = summarize_images(data)
    notes = [*summary.warnings, *summary.skipped[:MAX_SKIPPED_FILES]]
    warnings = "".join(f"<p class='warning'>{html.escape(each)}</p>" for each in notes)
    head = [html_cell(title, scope="col") for title in ("class", "training", "test")]
    table = html_table(head, ([html_cell(str(value)) for value in row] for row in summary.rows))
    return f"<h2>Images</h2>\n<p>{html.escape(summary.text)}</p>\n{warnings}{table}"


def name_cell(name: str, best: bool) -> str:
    """Return the cell of a model's name, which may be wrapped between its settings."""
    return html_cell(name, css_class="best" if best else "").replace(":", ":<wbr>").replace(",", ",<wbr>")


def _table(comparison: ComparisonResults) -> str:
    best = best_model(comparison.results)
    chosen = [*COLUMNS, *robustness_columns(list(comparison.results.values()))]
    nbsp = ",\N{NO-BREAK SPACE}"  # keeps a unit on the same line
    head = [
        html_cell(title, scope="col") for title in ("model", *(column.title.replace(", ", nbsp) for column in chosen))
    ]
    rows = [
        [name_cell(name, name == best), *map(html_cell, table_cells(chosen, results))]
        for name, results in comparison.results.items()
    ]
    said = "".join(f"<p>{html.escape(each)}</p>\n" for each in difference_sentences(comparison.results))
    return f"{html_table(head, rows)}\n{said}"
