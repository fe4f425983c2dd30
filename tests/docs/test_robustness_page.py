"""docs/robustness.md agrees with the result files."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "robustness_page.py"
pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="only a clone has the scripts")


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


def test_the_page_is_what_the_files_give(script: dict[str, Any]) -> None:
    written = (ROOT / "docs" / "robustness.md").read_text(encoding="utf-8")
    assert written == script["page"](), "run: python scripts/robustness_page.py"
    for name in ("universal", "acgan"):
        assert (f"images/{name}.png" in written) == (ROOT / "docs" / "images" / f"{name}.png").is_file()


def test_accuracies_and_errors_are_percentages_beside_the_papers(script: dict[str, Any], tmp_path: Path) -> None:
    history = dict.fromkeys(script["SHOWN"], 0.5) | {"120": 0.1234}
    found = {"attacks": [{"attack": "universal", "epsilon": 0.3, "history": history}]}
    bundled = {"model": "lenet", "weights": "mnist-laptop", "attacked": {"universal PGD": found}}
    augmented = {"clean_accuracy": 0.976, "attacks": [{"accuracy": 0.268}]}
    settings = {"train_images": 12000, "batch": 20}
    drawn = {"images": 4000, "error_by_epoch": {"1": 0.25, "2": 0.0125}, "settings": settings}
    runs = {
        "universal": bundled,
        "augmentation": {"model": "lenet", "steps": 500, "augmentation": "", "attacked": augmented},
        "acgan": {"model": "g-capsnet-fc", "tests": {"acgan": drawn}},
    }
    for name, run in runs.items():
        (tmp_path / name).mkdir()
        written = {"runs": [run], "settings": {"images": 1000, "epsilon": 0.3}}
        (tmp_path / name / "evaluation.json").write_text(json.dumps(written))
    part = script["part"](tmp_path)
    assert "| lenet | universal PGD | 50.0 | 50.0 | 50.0 | 50.0 | 12.3 |" in part
    assert "| none | 97.6 | 26.8 |" in part
    assert "| g-capsnet-fc | 25.00 (23.5) | 1.25 (3.25) |" in part
    assert script["part"](tmp_path / "nothing") == ""
