"""What was measured of a family of models, or of a routing: for its own page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from docs_parts.found import Number, Trial, attacked, grid_budget, milliseconds, numbers, trials
from docs_parts.marks import Maker, table
from torchcaps.html import escape_markdown
from torchcaps.pretrained import list_pretrained

NOTHING = "Nothing was measured yet."


def model_results(results: Path, *names: str) -> str:
    """All results of some models."""
    parts = [
        _papers(numbers(results), lambda number: number.model in names),
        _grid(results, lambda trial: trial.model in names),
        _times(results, names),
        _attacks(results, names),
        _weights(names),
    ]
    return "\n\n".join(filter(None, parts)) or NOTHING


def routing_results(results: Path, *names: str) -> str:
    """All results of networks with some routings."""
    parts = [
        _grid(results, lambda trial: trial.routing in names),
        _papers(numbers(results), lambda number: number.routing in names),
    ]
    return "\n\n".join(filter(None, parts)) or NOTHING


def routing_grid(results: Path) -> str:
    """Routings against models, as far as they were trained under one budget."""
    found = [trial for trial in trials(results) if trial.routing]
    cells = {(_host(trial), trial.routing): trial for trial in found}
    hosts = [host for host, count in Counter(host for host, _ in cells).items() if count > 1]
    routings = sorted({routing for host, routing in cells if host in hosts})
    rows = [
        [
            f"`{host}`",
            *(f"{cells[host, each].accuracy.center:.1f}" if (host, each) in cells else "" for each in routings),
        ]
        for host in hosts
    ]
    half = max(trial.accuracy.half_width for trial in found)
    words = f"Test accuracy in %: {grid_budget(results)}. The choice of images alone makes up to ± {half:.1f} points."
    return f"{words}\n\n{table(['network', *(f'`{each}`' for each in routings)], rows, numbers=len(routings))}"


def _host(trial: Trial) -> str:
    """A network without its routing."""
    name, _, text = trial.label.partition(":")
    rest = [part for part in text.split(",") if part and not part.startswith("routing=")]
    return f"{name}:{','.join(rest)}" if rest else name


def _papers(found: Sequence[Number], wanted: Callable[[Number], bool]) -> str:
    rows = [
        [
            f"[{each.paper}, {each.table}](../papers/{each.paper}.md)",
            escape_markdown(f"{each.row}: {each.column}"),
            each.ours,
            each.published,
            f"{each.data}, {each.profile}, {each.seeds}",
            "yes" if each.competent else "no",
        ]
        for each in found
        if wanted(each)
    ]
    if not rows:
        return ""
    head = ["where", "what", "ours", "paper", "trained on, profile, seeds", "competent"]
    words = (
        "In the papers' own tables, ours next to theirs. A value counts for a claim only if the networks behind it are "
        "[competent](../reproduce.md#competence):"
    )
    return f"{words}\n\n{table(head, rows, numbers=4)}"


def _grid(results: Path, wanted: Callable[[Trial], bool]) -> str:
    rows = [
        [
            f"`{trial.label}`",
            f"{trial.accuracy.center:.1f} ({trial.accuracy.low:.1f} to {trial.accuracy.high:.1f})",
            f"{trial.parameters:,}",
        ]
        for trial in trials(results)
        if wanted(trial)
    ]
    if not rows:
        return ""
    words = f"Among all models under one small budget ({grid_budget(results)}):"
    head = ["network", "test accuracy, %, and 95 % interval over images", "parameters"]
    return f"{words}\n\n{table(head, rows, numbers=2)}"


def _times(results: Path, names: Sequence[str]) -> str:
    columns = [(size, task) for size in ("paper", "laptop") for task in ("training", "inference")]
    found = {column: milliseconds(results, size=column[0], task=column[1]) for column in columns}
    rows = [
        [f"`{name}`", *(f"{found[column][name]:,.1f}" if name in found[column] else "" for column in columns)]
        for name in names
        if any(name in each for each in found.values())
    ]
    if not rows:
        return ""
    head = ["model", *(f"{task}, {size} size" for size, task in columns)]
    words = "Milliseconds for a batch of 8 on one thread ([more](../performance.md)):"
    return f"{words}\n\n{table(head, rows, numbers=len(columns))}"


def _attacks(results: Path, names: Sequence[str]) -> str:
    rows = []
    for run in attacked(results):
        if run["model"] in names:
            least = min(row["epsilon"] for row in run["attacked"]["attacks"])
            kept = [row for row in run["attacked"]["attacks"] if row["epsilon"] == least]
            shown = ", ".join(f"{row['attack']} {100 * row['accuracy']:.0f}" for row in kept)
            affine = run["tests"]["affnist"]
            rows.append([f"`{run['model']}`", f"{100 * affine['accuracy']:.0f}", f"{shown} (epsilon {least:g})"])
            images = affine["images"]
    if not rows:
        return ""
    words = f"Accuracy in % on {images} changed and attacked test images ([more](../robustness.md)):"
    return f"{words}\n\n{table(['model', 'affine change in place', 'attacks'], rows)}"


def _weights(names: Sequence[str]) -> str:
    cards = [card for card in list_pretrained() if card.model in names]
    lines = [
        f"- `{card.tag}`: {100 * card.test_accuracy:.2f} % of {card.test_images:,} test images of {card.data}"
        for card in cards
    ]
    return "Ready weights (`create_model(..., pretrained=...)`):\n\n" + "\n".join(lines) if lines else ""


def makers(results: Path) -> dict[str, Maker]:
    return {
        "model-results": partial(model_results, results),
        "routing-results": partial(routing_results, results),
        "routing-grid": partial(routing_grid, results),
    }
