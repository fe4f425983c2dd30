"""Tables from the result files of benchmarks/: search for gamma and lambda, shear of affNIST, threads per training."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from docs_parts.marks import Maker, table
from torchcaps.files import read_json
from torchcaps.reproduce.spec import load_spec

NOTHING = "Not measured yet: `python -m benchmarks.{}` does it."
Row = dict[str, Any]
SHEARS = ("MNIST", "AffNIST", "AffNIST-45")  # columns of gu2021's Table 1


def discriminative_search(results: Path) -> str:
    """The search for step size and penalty of discriminative routing, one table for each stage."""
    path = results / "discriminative-step.json"
    if not path.is_file():
        return NOTHING.format("discriminative_step")
    content = read_json(path)
    parts = []
    for stage, words in (
        ("search", "Search, one seed"),
        ("finalists", "Longer training with the same reach, mean over seeds and range"),
    ):
        chosen = [row for row in content["rows"] if row["stage"] == stage]
        settings = list(dict.fromkeys((row["penalty"], row["reach"], row["lambda"]) for row in chosen))
        lines = [_search_line(each, chosen) for each in sorted(settings, key=lambda each: (each[1], each[0], each[2]))]
        shown = content["stages"][stage]
        seen = round(shown["epochs"] * shown["train_images"] * (1 - shown["validation"]))
        kept = round(shown["train_images"] * shown["validation"])
        head = [
            "reach",
            "penalty, lambda",
            "seeds",
            *(f"{each}, %" for each in _data(chosen)),
            "couplings, mean ± deviation",
        ]
        words = f"{words}; {seen:,} images shown, {kept:,} validation images:"
        parts.append(f"{words}\n\n{table(head, lines, numbers=len(head) - 2)}")
    return "\n\n".join(parts)


def _data(rows: Sequence[Row]) -> list[str]:
    return sorted({row["data"] for row in rows})


def _search_line(setting: tuple[str, float, float], rows: Sequence[Row]) -> list[str]:
    penalty, reach, weight = setting
    own = [row for row in rows if (row["penalty"], row["reach"], row["lambda"]) == setting]
    accuracies = []
    for data in _data(rows):
        found = [row["validation accuracy (%)"][-1] for row in own if row["data"] == data]
        spread = f" ({min(found):.2f} to {max(found):.2f})" if len(found) > 1 else ""
        accuracies.append(f"{statistics.fmean(found):.2f}{spread}" if found else "")
    mean, deviation = (statistics.fmean(row["couplings"][name] for row in own) for name in ("mean", "deviation"))
    name = f"{penalty}, {weight:g}" if reach else "frozen"
    seeds = len({row["seed"] for row in own})
    return [f"{reach:g}", name, str(seeds), *accuracies, f"{mean:.3f} ± {deviation:.3f}"]


def affnist_shear(results: Path) -> str:
    """The networks of gu2021's Table 1 in profile desk, on both readings of affNIST's shear."""
    cells = load_spec("gu2021").tables["table1"].cells
    rows: dict[str, dict[str, list[float]]] = {}
    for name, cell in cells.items():
        files = sorted((results / "gu2021" / "table1").glob(f"{name}-desk-seed?.json"))
        if cell.column in SHEARS and files:
            rows.setdefault(cell.row, {})[cell.column] = [read_json(file)["value"] for file in files]
    published = {cell.row: cell.published for cell in cells.values() if cell.column == "AffNIST"}
    lines = [
        [
            row,
            str(min(len(values) for values in found.values())),
            *(f"{statistics.fmean(found[column]):.1f}" for column in SHEARS),
            f"{published[row]:.1f}" if published[row] else "",
        ]
        for row, found in rows.items()
        if set(found) == set(SHEARS)
    ]
    words = "Test accuracy in % of networks trained on `mnist-40-moving` (gu2021, Table 1, profile desk):"
    head = ["network", "seeds", "mnist-40", "affnist (factor 0.2)", "affnist-45", "affNIST in gu2021"]
    return f"{words}\n\n{table(head, lines, numbers=len(head) - 1)}"


def threads_per_training(results: Path) -> str:
    """Throughput of two trainings of one thread side by side, and of one training with two threads."""
    path = results / "bench" / "side-by-side.json"
    if not path.is_file():
        return NOTHING.format("side_by_side")
    found = read_json(path)
    lines = [[way, f"{speed:,.0f}"] for way, speed in found["images_per_second"].items()]
    rounds = len(next(iter(found["rounds"].values())))
    words = (
        f"{found['network']}, images per second over all trainings, median of {rounds} alternating rounds on "
        f"{found['environment']['processor']}; ratio {found['ratio']:.2f}. The load average before was "
        f"{found['load_average_before']:g}:"
    )
    return f"{words}\n\n{table(['way', 'images per second'], lines, numbers=1)}"


def makers(results: Path) -> dict[str, Maker]:
    return {
        "discriminative-search": partial(discriminative_search, results),
        "affnist-shear": partial(affnist_shear, results),
        "threads-per-training": partial(threads_per_training, results),
    }
