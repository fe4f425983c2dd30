"""Which network to use, from what was measured; and what nobody has measured, in plain words."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from docs_parts.found import Trial, all_evidence, attacked, grid_budget, milliseconds, numbers, trials
from docs_parts.marks import Maker, table
from torchcaps.analysis.intervals import proportion_interval
from torchcaps.data import datasets
from torchcaps.html import escape_markdown
from torchcaps.models.registry import models
from torchcaps.reproduce.claims_text import table_label
from torchcaps.reproduce.results import find_results
from torchcaps.reproduce.spec import PROFILES


def accuracy_and_speed(results: Path) -> str:
    """Every model with its accuracy under one budget and its time; then who is best, as far as one can tell."""
    found = [trial for trial in trials(results) if ":" not in trial.label]
    steps, answers = (milliseconds(results, size="laptop", task=task) for task in ("training", "inference"))
    rows = [
        [
            f"`{trial.model}`",
            "capsules" if models.get(trial.model).capsules else "plain",
            f"{trial.accuracy.center:.1f} ({trial.accuracy.low:.1f} to {trial.accuracy.high:.1f})",
            f"{steps[trial.model]:.1f}" if trial.model in steps else "",
            f"{answers[trial.model]:.1f}" if trial.model in answers else "",
            f"{trial.parameters:,}",
        ]
        for trial in found
    ]
    head = ["model", "kind", "accuracy, %, and 95 % interval", "training step, ms", "inference, ms", "parameters"]
    words = (
        f"Accuracy: {grid_budget(results)}; the interval is over test images, and other seeds would differ by more. "
        "Times: laptop size, for the image of the model's paper, a batch of 8 on one thread, measured apart."
    )
    return "\n\n".join([*_leaders(found, steps), table(head, rows, numbers=4), words])


def _leaders(found: list[Trial], steps: dict[str, float]) -> list[str]:
    best = found[0]
    capsules = [trial for trial in found if models.get(trial.model).capsules]
    plain = [trial for trial in found if not models.get(trial.model).capsules]
    gap = proportion_interval(
        [1.0, -1.0],
        [capsules[0].accuracy.center / 100, plain[0].accuracy.center / 100],
        [capsules[0].images, plain[0].images],
    )
    timed = sorted((steps[trial.model], trial.model) for trial in capsules if trial.model in steps)
    quick = sorted((steps[trial.model], trial.model) for trial in plain if trial.model in steps)
    lines = [
        f"**Most accurate under this budget:** `{best.model}`, {best.accuracy.center:.1f} %.",
        f"**Capsules or a plain network?** Undecided (one seed): the best capsule network here, `{capsules[0].model}`, "
        f"and the best plain one, `{plain[0].model}`, differ by {100 * (gap.low + gap.high) / 2:.1f} points, 95 % "
        f"interval over test images {100 * gap.low:.1f} to {100 * gap.high:.1f}.",
    ]
    if timed and quick:
        lines.append(
            f"**Fastest to train:** among capsules `{timed[0][1]}` with {timed[0][0]:.1f} ms a step, among plain "
            f"networks `{quick[0][1]}` with {quick[0][0]:.1f} ms."
        )
    return lines


def under_change(results: Path) -> str:
    """Affine change, overlap, viewpoints and attacks: the papers' values on competent networks, and a quick look."""
    wanted = {"gu2021": ("table1", "table4"), "hinton2018": ("table2", "fig3"), "choi2019": ("table1",)}
    chosen = [each for each in numbers(results) if each.name in wanted.get(each.paper, ())]
    rows = [
        [
            f"[{each.paper}, {each.table}](papers/{each.paper}.md)",
            escape_markdown(f"{each.row}: {each.column}"),
            each.ours,
            each.published,
            f"{each.data}, {each.profile}, {each.seeds}",
        ]
        for each in chosen
        if each.competent
    ]
    parts = [table(["from", "what", "ours", "paper", "trained on, profile, seeds"], rows, numbers=3)] if rows else []
    left = len(chosen) - len(rows)
    if left:
        parts.append(
            f"{left} further values of these tables were measured on networks that are not "
            "[competent](reproduce.md#competence), and are only on the [pages of the papers](papers/index.md)."
        )
    runs = attacked(results)
    if runs:
        images = runs[0]["attacked"]["images"]
        names = list(dict.fromkeys(row["attack"] for row in runs[0]["attacked"]["attacks"]))
        least = min(row["epsilon"] for row in runs[0]["attacked"]["attacks"])
        lines = []
        for run in runs:
            kept = {row["attack"]: row["accuracy"] for row in run["attacked"]["attacks"] if row["epsilon"] == least}
            shown = [f"{100 * kept[name]:.0f}" if name in kept else "" for name in names]
            lines.append([f"`{run['model']}`", f"{100 * run['tests']['affnist']['accuracy']:.0f}", *shown])
        parts.append(
            f"A quick look at {images} test images, one seed, accuracy in %; attacks may change each pixel by up to "
            f"{least:g} ([all of it](robustness.md)):"
        )
        parts.append(table(["model", "affine change", *names], lines, numbers=1 + len(names)))
    return "\n\n".join(parts) or "Not measured yet."


def not_measured(results: Path) -> str:
    """What no result file says anything about."""
    lines, seen = [], set()
    for paper, evidence in all_evidence(results).items():
        spec = evidence[0].spec
        open_tables = [
            table_label(name)
            for name, each in spec.tables.items()
            if not any(found.has_results([f"{name}/{cell}" for cell in each.cells]) for found in evidence)
        ]
        if open_tables:
            whole = len(open_tables) == len(spec.tables)
            lines.append(f"- {paper}: {'nothing at all' if whole else ', '.join(open_tables)}")
        seen |= {found.profile for found in evidence if found.has_results()}
    used = {(result.training or {}).get("data") for result in find_results(results)} | {"mnist"}
    lines += [f"- nothing in profile `{profile}`" for profile in PROFILES if profile not in seen]
    idle = [f"`{record.name}`" for record in datasets if record.name not in used and "affnist" not in record.name]
    lines.append(f"- in the papers' tables, no network was trained on {', '.join(idle)}")
    accelerators = {result.environment.get("accelerator") for result in find_results(results)}
    if accelerators <= {None}:
        lines.append("- nothing on a GPU")
    lines.append("- nothing on photographs of your kind: `torchcaps compare` with your own images is the only answer")
    return "\n".join(lines)


def makers(results: Path) -> dict[str, Maker]:
    return {
        "which-accuracy": partial(accuracy_and_speed, results),
        "which-change": partial(under_change, results),
        "which-not": partial(not_measured, results),
    }
