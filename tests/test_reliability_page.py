"""The page on reliability says what the result files say."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "reliability_page.py"
pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="only a clone has the scripts")
RESULTS = {
    "torture": {"kills": 120, "wrong": 0, "scenarios": {"a": {"refusals": 3}, "b": {"refusals": 4}}},
    "fuzz": {"inputs": 100_000, "readers": {"a": {}, "b": {}}, "wrong": ["x"], "megabytes_grown": 3.4},
    "numerics": {"images": 20_000, "models": {"a": {"troubles": []}, "b": {"troubles": ["x"]}}, "models_in_all": 3},
    "processes": {"rows": [{"largest_difference": 1e-7, "steps": 14}, {"largest_difference": 2e-6, "steps": 15}]},
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
        environment = {"processor": "abacus", "cores": 2, "versions": {"torch": "9.9"}}
        (tmp_path / f"{name}.json").write_text(json.dumps(result | {"environment": environment}))
    page = script["page"](tmp_path)
    assert "not measured yet" not in page
    for words in (
        "120 kills, 7 refused writes: 0 things wrong",
        "100,000 damaged files through 2 readers: 1 broke the promise; memory grew by 3 MB",
        "20,000 images through 2 of 3 models: 1 answers",
        "at most 2.0e-06 after 15 steps (2 pairs of runs)",
        "1 of 1 pairs of runs the same",
        "5 tests passed, 0 failed, Slurm 22.05",
        "Measured on: abacus, 2 cores, torch 9.9.",
    ):
        assert words in page
