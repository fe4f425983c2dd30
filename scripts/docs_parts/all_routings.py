"""The comparison of all routings under one backbone, from what ``torchcaps compare`` wrote."""

from __future__ import annotations

import re
import statistics
from functools import partial
from pathlib import Path
from typing import Any

from docs_parts.found import routing_of
from docs_parts.marks import Maker, table
from torchcaps.analysis.intervals import Interval
from torchcaps.compare.table import differences, percent
from torchcaps.files import read_json, read_yaml

SETTINGS = Path(__file__).parents[2] / "examples" / "all-routings.yaml"
NOTHING = "Not measured yet: the command above does it with `--data {}`."
Results = list[dict[str, Any]]
BASELINE = "`uniform`"
HEADS = {"average": "average pooling", "max": "max pooling", "fc": "fully connected"}


def all_routings(results: Path, data: str) -> str:
    """The most accurate head first, with its paired difference from the baseline."""
    path = results / "all-routings" / f"{data}.json"
    if not path.is_file():
        return NOTHING.format(data)
    found = chosen_rates(read_json(path))
    baseline = next(label for label in found if head_name(label) == BASELINE)
    ordered = {baseline: found[baseline]} | found  # differences are from the first; files are sorted by name
    gaps = differences(ordered)
    rows = [
        [
            head_name(label),
            peak_rate(label),
            percent(run["validation_accuracy"] for run in runs),
            percent(run["test_accuracy"] for run in runs),
            "baseline" if label == baseline else _gap(gaps.get(label)),
            f"{runs[0]['parameters']:,}",
            f"{statistics.fmean(run['images_per_second'] for run in runs):,.0f}",
        ]
        for label, runs in sorted(found.items(), key=lambda each: -_mean(each[1]))
    ]
    columns = ["head", "peak rate", "validation, %", "test, %", "test minus baseline, points", "parameters"]
    columns.append("training, images/s")
    learned = differences(ordered, "validation_accuracy")
    words = [f"On test images: {_verdicts(gaps)}", f"On validation images: {_verdicts(learned)}"]
    return "\n\n".join([_budget(found), table(columns, rows, numbers=6), *words])


def head_name(label: str) -> str:
    """The routing of a capsule head, or the kind of a plain one.

    >>> head_name("sr-capsnet:routing=em,votes=vector"), head_name("sr-capsnet"), head_name("resnet20:head=max")
    ('`em`', '`self-routing`', 'plain: max pooling')
    """
    model, _, text = label.partition(":")
    options = dict(part.split("=") for part in text.split(",") if part)
    routing = routing_of(model, options)
    return f"`{routing}`" if routing else f"plain: {HEADS[options.get('head', 'average')]}"


def peak_rate(label: str) -> str:
    """The peak of a network's one-cycle schedule: its own, or the shared one.

    >>> peak_rate("sr-capsnet"), peak_rate("sr-capsnet:routing=em,schedule=one-cycle:0.003:0.1")
    ('0.01', '0.003')
    """
    own = re.search(r"schedule=([^,]+)", label)
    return (own[1] if own else read_yaml(SETTINGS)["schedule"]).split(":")[1]


def chosen_rates(found: dict[str, Results]) -> dict[str, Results]:
    """Of the networks that differ only in their learning rate, the one that is best on validation images."""
    heads: dict[str, list[str]] = {}
    for label in found:
        heads.setdefault(head_name(label), []).append(label)
    seeds = {head: min(len(found[label]) for label in labels) for head, labels in heads.items()}

    def accuracy(label: str) -> float:
        return statistics.fmean(run["validation_accuracy"] for run in found[label][: seeds[head_name(label)]])

    best = (max(labels, key=accuracy) for labels in heads.values())
    return {label: found[label] for label in best}


def _mean(runs: Results) -> float:
    return statistics.fmean(run["test_accuracy"] for run in runs)


def _gap(found: Interval | None) -> str:
    return f"{found.center:+.2f} ± {found.half_width:.2f}" if found else ""


def _verdicts(gaps: dict[str, Interval]) -> str:
    """Which heads are better or worse than the baseline beyond the intervals."""
    better = [head_name(label) for label, gap in gaps.items() if gap.low > 0]
    worse = [head_name(label) for label, gap in gaps.items() if gap.high < 0]
    open_ = [head_name(label) for label, gap in gaps.items() if gap.low <= 0 <= gap.high]
    parts = [("better than the baseline", better), ("worse", worse), ("no difference can be told", open_)]
    return "; ".join(f"{words}: {', '.join(names) or 'none'}" for words, names in parts) + "."


def _budget(found: dict[str, Results]) -> str:
    run, seeds = next(iter(found.values()))[0], len(next(iter(found.values())))
    environment = run["environment"]
    epochs = re.search(r"--epochs (\d+)", environment["command"])
    assert epochs
    return (
        f"{run['size'].capitalize()} size, {epochs[1]} epochs, {seeds} seeds, {run['test_images']:,} test images; ± is "
        "half of a 95 % interval over seeds, and differences are paired by seed; intervals are not adjusted for the "
        "number of comparisons. Speeds are those of one thread of a "
        f"machine that was busy with other work ({environment['processor']}): they are too low, and only large "
        "differences between them mean something."
    )


def makers(results: Path) -> dict[str, Maker]:
    return {"all-routings": partial(all_routings, results)}
