"""The reliability page agrees with the result files."""

from __future__ import annotations

import datetime
import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "reliability_page.py"
pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="only a clone has the scripts")
MODELS = {
    "a": {"troubles": [], "commit": "2" * 40},
    "b": {"troubles": ["x"], "commit": "3" * 40 + "+"},
    "c": {"troubles": [], "commit": "2" * 40},
}
PAIRS = [{"largest_difference": gap, "steps": steps} for gap, steps in ((1e-7, 14), (2e-6, 15), (None, 0))]
RESULTS = {
    "torture": {"kills": 120, "wrong": 0, "scenarios": {"a": {"refusals": 3}, "b": {"refusals": 4, "stops": 9}}},
    "fuzz": {"inputs": 100_000, "readers": {"a": {}, "b": {}}, "wrong": ["x"], "megabytes_grown": 3.4},
    "numerics": {"images": 20_000, "models": MODELS, "models_in_all": 3},
    "processes": {"rows": PAIRS},
    "determinism": {"rows": [{"promised": True, "differ": []}, {"promised": False, "differ": ["x"]}]},
    "slurm": {"passed": 5, "failed": 0, "slurm": "22.05"},
}


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_the_page_is_what_the_files_give(script: dict[str, Any]) -> None:
    written = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    assert written == script["page"](), "run: python scripts/reliability_page.py"


def test_what_was_measured_is_told(script: dict[str, Any], tmp_path: Path) -> None:
    assert script["page"](tmp_path).count("not measured yet") == len(RESULTS)
    for name, result in RESULTS.items():
        environment = {"commit": "1" * 40, "processor": "abacus", "cores": 2, "versions": {"torch": "9.9"}}
        (tmp_path / f"{name}.json").write_text(json.dumps(result | {"environment": environment, "date": "2026-01-02"}))
    page = script["page"](tmp_path)
    assert "not measured yet" not in page
    for words in (
        "120 kills, 9 stop signals, 7 refused writes: 0 failures",
        "100,000 damaged files through 2 readers: 1 failures; memory grew by 3 MB",
        "20,000 images through 3 of 3 models: 1 non-finite outputs or gradients",
        "`2222222` (2 models), `3333333` with uncommitted changes (1 models); 2026-01-02",
        "at most 2.0e-06 after 15 steps (2 pairs of runs); 1 pairs of runs failed",
        "| `1111111`; 2026-01-02 | `tests/train/test_processes.py` |",
        "1 of 1 pairs of runs identical",
        "5 tests passed, 0 failed, Slurm 22.05",
        "Measured on: abacus, 2 cores, torch 9.9.",
    ):
        assert words in page


def test_each_file_says_at_which_commit_and_when_it_was_measured(script: dict[str, Any]) -> None:
    page = script["page"]()
    for promise in script["PROMISES"]:
        result = json.loads((ROOT / "results" / "reliability" / f"{promise.result}.json").read_text())
        commits = {result["environment"]["commit"]} | {each["commit"] for each in result.get("models", {}).values()}
        for commit in commits:
            assert re.fullmatch(r"[0-9a-f]{40}\+?", commit)
            assert f"`{commit[:7]}`" in page
        datetime.date.fromisoformat(result["date"])


def test_the_quick_forms_run_with_every_make_test(script: dict[str, Any]) -> None:
    quick = [ROOT / promise.quick for promise in script["PROMISES"] if promise.quick]
    assert len(quick) == len(RESULTS) - 1  # Slurm has none
    for file in quick:
        text = file.read_text(encoding="utf-8")
        assert "def test_" in text
        assert "mark.slow" not in text
