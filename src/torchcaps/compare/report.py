"""HTML pages that need nothing else: one skeleton and one style for every report."""

from __future__ import annotations

import html
from importlib.resources import files
from pathlib import Path

from torchcaps.compare.figures import (
    Picture,
    confusions,
    learning_curves,
    perturbations,
    reconstructions,
    robust_pictures,
)
from torchcaps.compare.job import Comparison
from torchcaps.compare.own_images import is_own, shown_name, tell_pictures
from torchcaps.compare.table import COLUMNS, cells, robust_columns
from torchcaps.evaluate.clean import reached_target, test_images
from torchcaps.files import write_text
from torchcaps.train import load


# MERGED The report: one HTML file that needs nothing else, in light and dark, on paper and on a phone.
def html_page(title: str, body: str, *, style: str = "") -> str:
    """A whole page, with the style of all reports and what one of them adds to it."""
    shared = files("torchcaps.compare").joinpath("report.css").read_text(encoding="utf-8")
    return (
        "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
        f"<title>torchcaps: {html.escape(title)}</title>\n<style>{shared}{style}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def html_figure(picture: Picture, heading: str = "h2") -> str:
    """A picture that follows the theme of the page, under its title and above its caption."""
    title, caption = html.escape(picture.title), html.escape(picture.caption)
    warning = f"<p class='warning'>{html.escape(picture.warning)}</p>" if picture.warning else ""
    return (
        f"<{heading}>{title}</{heading}>\n{warning}<figure><picture>"
        f"<source media='(prefers-color-scheme: dark)' srcset='{picture.dark}'>"
        f"<img alt='{title}' src='{picture.light}'></picture>"
        f"<figcaption>{caption}</figcaption></figure>"
    )


MOST_SKIPPED = 10  # files that are named


def write_report(comparison: Comparison) -> Path:
    """Write report.html into the comparison's folder and return its path."""
    target = comparison.path / "report.html"
    first = next(iter(comparison.runs.values()))[0].config()
    seeds = len(next(iter(comparison.results.values())))
    environment = next(iter(comparison.results.values()))[0]["environment"]
    budget = (
        f"{first.train_images:,} images of the training split" if first.train_images else "the whole training split"
    )
    words = [
        f"Every model: {first.size} size, {budget}, {first.epochs} epoch{'s' if first.epochs > 1 else ''}, "
        f"{seeds} seed{'s' if seeds > 1 else ''}. {first.validation:.0%} of those images were held back and chose the "
        f"checkpoint; the test images chose nothing.{_match(comparison)}",
        f"Made by <code>{html.escape(environment['command'])}</code> on {html.escape(environment['processor'])}, "
        f"{html.escape(str(environment['threads']))} threads, "
        f"torch {html.escape(str(environment['versions']['torch']))}, "
        f"commit {html.escape(str(environment['commit'])[:12])}.",
    ]
    sections = "\n".join(map(html_figure, _pictures(comparison)))
    title = f"Comparison on {shown_name(first.data)}"
    body = (
        f"<h1>{html.escape(title)}</h1>\n<p>{words[0]}</p>\n"
        f"{_table(comparison)}\n{_own_pictures(first.data)}{sections}\n<footer>{words[1]}</footer>"
    )
    write_text(target, html_page(title, body))
    return target


def _pictures(comparison: Comparison) -> list[Picture]:
    first = {name: results[0] for name, results in comparison.results.items()}
    classes = load(next(iter(comparison.runs.values()))[0].path).class_names
    pictures = []
    for name, runs in comparison.runs.items():
        model, images = load(runs[0].path), test_images(runs[0].config())
        if model.decoder is not None:
            pictures += [reconstructions(name, model, images), perturbations(name, model, images)]
    return [learning_curves(comparison), *robust_pictures(comparison), *pictures, confusions(first, classes)]


def _match(comparison: Comparison) -> str:
    """One sentence where models were stopped at an accuracy, and who never reached it."""
    stops = [run.config() for runs in comparison.runs.values() for run in runs if run.config().stop_at_accuracy]
    if not stops:
        return ""
    levels = sorted({f"{config.stop_at_accuracy:.2%}" for config in stops})
    missed = [name for name, results in comparison.results.items() if not reached_target(results)]
    where = stops[0].stop_on
    words = f" Training was stopped at {' and '.join(levels)} of the {where} images"
    words += "." if where == "validation" else ", which then also chose the checkpoint."
    return words + (f" Never reached, so not compared: {html.escape(', '.join(missed))}." if missed else "")


def _own_pictures(data: str) -> str:
    """Which pictures a user's own are, and what to be careful about; nothing for a known dataset."""
    if not is_own(data):
        return ""
    told = tell_pictures(data)
    careful = [*told.warnings, *told.skipped[:MOST_SKIPPED]]
    warnings = "".join(f"<p class='warning'>{html.escape(each)}</p>" for each in careful)
    rows = "".join(f"<tr><td>{html.escape(name)}</td><td>{a}</td><td>{b}</td></tr>" for name, a, b in told.rows)
    head = "".join(f"<th scope='col'>{title}</th>" for title in ("class", "training", "test"))
    return (
        f"<h2>Pictures</h2>\n<p>{html.escape(told.words)}</p>\n{warnings}"
        f"<div class='table'><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>\n"
    )


def _table(comparison: Comparison) -> str:
    fair = [name for name, results in comparison.results.items() if reached_target(results)]
    best = max(fair, key=lambda name: sum(r["validation_accuracy"] for r in comparison.results[name]), default=None)
    chosen = [*COLUMNS, *robust_columns(list(comparison.results.values()))]
    titles = [html.escape(column.title).replace(", ", ",&nbsp;") for column in chosen]  # a unit stays with its word
    head = "".join(f"<th scope='col'>{title}</th>" for title in titles)
    rows = []
    for name, results in comparison.results.items():
        mark = " class='best'" if name == best else ""
        figures = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells(chosen, results))
        rows.append(f"<tr><td{mark}>{html.escape(name)}</td>{figures}</tr>")
    return (
        f"<div class='table'><table><thead><tr><th scope='col'>model</th>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
