"""docs/performance.md agrees with the result files."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from torchcaps.bench.checks import Check

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "performance_page.py"
pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="only a clone has the scripts")
SPREAD = {"median": 0.012, "lower_quartile": 0.011, "upper_quartile": 0.0135, "rounds": 3}
CURVE = [
    {"images": 60_000, "core_seconds": 50.4, "accuracy": 0.99},
    {"images": 120_000, "core_seconds": 100.6, "accuracy": 0.991},
]
ENVIRONMENT = {"processor": "abacus", "cores": 2, "versions": {"torch": "9.9"}}


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_long_sections_are_folded(script: dict[str, Any]) -> None:
    head = "| model | ms |\n| --- | ---: |"
    for rows in (40, 41):
        text = script["folded"](f"Words.\n\n{head}" + "\n| a | 1 |" * rows + "\n")
        assert text.startswith(
            "Words." if rows == 40 else '<details markdown="1">\n<summary>41 rows</summary>\n\nWords.'
        )


def test_the_page_is_what_the_files_give(script: dict[str, Any]) -> None:
    written = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert written == script["page"](), "run: python scripts/performance_page.py"


def test_every_kind_of_result_has_a_section(script: dict[str, Any], tmp_path: Path) -> None:
    checks = [Check("ours / theirs", 0.5, high=0.55, spread=SPREAD), Check("other", None, low=2, note="left out")]
    net = {"model": "capsnet", "size": "paper", "batch": 8}
    grown = {"points": [SPREAD, SPREAD], "exponent": 1.25}
    sizes = {"activations": [1_000_000, 2_000_000], "peak": [3_000_000, 4_000_000]}
    sizes |= {"exponents": {"activations": 0.5, "peak": 0.75}}  # type: ignore[dict-item]
    axis = {"values": [1, 2], "seconds": {"plain": grown}, "bytes": {"plain": sizes}}
    behind = {"plain": SPREAD | {"median": 0.9}, "straightforward": SPREAD | {"median": 2.0}}
    slower = {**net, "image": [1, 28, 28], "task": "training", "against": "3512b18", "times faster": behind["plain"]}
    slower |= {"seconds": {"this": SPREAD, "other": SPREAD}}
    trained = {**net, "image": [1, 28, 28], "profile": "desk", "task": "inference"}
    compiled = {"seconds": {"torchcaps": SPREAD, "compiled": SPREAD}, "times ours": {"compiled": behind["plain"]}}
    results: dict[str, dict[str, Any]] = {
        "capsnet": {"checks": [check.as_row() for check in checks], "batches_divided_by": 1},
        "step": {
            "rows": [{**net, "threads": 1, "task": "training", "seconds": {"plain": SPREAD}, "times ours": behind}]
        },
        "against-3512b18": {"rows": [slower]},
        "step-compiled-specs": {
            "rows": [
                {**trained, **compiled, "compilation_seconds": 21.4},
                {**trained, "model": "lenet", "seconds": {}, "note": "not measured: longer than 600 s"},
            ]
        },
        "memory": {"rows": [{**net, "bytes": {"plain": {"activations": 7_500_000, "peak": 9_000_000}}}]},
        "growth": {"models": {"capsnet": {"batch": axis}}},
        "learning": {"rows": [{"case": "capsnet-mnist", "recipe": "new", "seed": 0, "settings": {}, "points": CURVE}]},
    }
    for name, result in results.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(result | {"environment": ENVIRONMENT}))
    page = script["page"](tmp_path)
    assert "| ours / theirs | 0.5 (0.011 to 0.0135) | at most 0.55 | yes |  |" in page
    assert "| other |  | at least 2 |  | left out |" in page
    assert "| capsnet, paper | 8 | 1 | 12.0 |" in page
    assert "training, time of plain divided by ours: capsnet, paper, batch 8: 0.90." in page
    assert "time of straightforward" not in page, "it is slower than ours"
    assert "capsnet, paper, 28 pixels, training, batch 8: slower than before, 0.90 times as fast." in page
    assert "| capsnet, paper, 28 pixels | training | 8 | 12.0 | 12.0 | 0.90 (0.01 to 0.01) |" in page
    assert "| capsnet, paper, 28 pixels | desk | inference | 8 | 12.0 | 12.0 | 0.90 (0.01 to 0.01) | 21 |" in page
    assert "| lenet, paper, 28 pixels | desk | inference | 8 |  |  | not measured: longer than 600 s |  |" in page
    assert "capsnet, profile desk, inference, batch 8: compiled / ours 0.90." in page
    assert "| capsnet, paper | 8 | 7.5 / 9.0 |" in page
    assert "| capsnet | batch | plain | 1 to 2 | 1.25 |  | 0.50 | 0.75 |" in page
    assert "| capsnet on MNIST | new | 99.0% | 1 of 1 | 60,000 | 50 | 99.10% | 120,000 | 101 |" in page
    assert "| capsnet on MNIST | new | 99.2% | 0 of 1 |  |  | 99.10% | 120,000 | 101 |" in page
    assert "abacus" in page
    assert "Datasets" not in page, "no file, no section"


def test_trials_pilots_and_rates_have_sections(script: dict[str, Any], tmp_path: Path) -> None:
    accuracies = {"0.002": 0.98, "0.004": 0.985, "0.008": None}
    rate = {"kind": "CapsNet, MNIST", "training": "sabour2017/capsnet", "steps": 150}
    rate |= {"suggested": 0.004, "validation_accuracy": accuracies, "peak": 0.004}
    pilot = {"name": "avg", "training": "gu2021/avg", "points": CURVE}
    pilot |= {"recipe": {"optimizer": "muon", "schedule": "one-cycle:0.004:0.1", "batch_size": 64}}
    trial = {"name": "identity", "seed": 0, "points": CURVE}
    gradient = {"iterations": 3, "layer": "class capsules"}
    gradient |= {"median_norm": 1.9, "largest_norm": 8.67, "cosine_with_2": 0.21}
    results: dict[str, list[dict[str, Any]]] = {
        "gradients": [gradient],
        "rates": [rate, rate | {"kind": "other", "suggested": None}],
        "pilots": [pilot, pilot | {"name": "too fast", "points": []}],
        "trials": [trial, trial | {"name": "random", "points": []}],
    }
    (tmp_path / "bench").mkdir()
    (tmp_path / "learning").mkdir()
    for name, rows in results.items():
        text = json.dumps({"rows": rows, "environment": ENVIRONMENT})
        (tmp_path / "learning" / f"{name}.json").write_text(text)
    page = script["page"](tmp_path / "bench")
    by_peak = "0.002: 98.0%, 0.004: 98.5%, 0.008: diverged"
    assert f"| CapsNet, MNIST | `sabour2017/capsnet` | 0.004 | {by_peak} | 150 | 0.004 |" in page
    assert "| other | `sabour2017/capsnet` | none |" in page
    assert "| avg | `gu2021/avg` | muon | `one-cycle:0.004:0.1` | 64 | 99.10% | 120,000 | 101 |" in page
    assert "| too fast | `gu2021/avg` | muon | `one-cycle:0.004:0.1` | 64 | failed |  |  |" in page
    assert "| identity | 0 | 120,000 | 99.10% | 101 |" in page
    assert "| random | 0 |  | failed |  |" in page
    assert "| 3 | class capsules | 1.9 | 8.7 | 0.21 |" in page
