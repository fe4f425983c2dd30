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


def test_robust_training_is_compared_by_the_stronger_attack(script: dict[str, Any], tmp_path: Path) -> None:
    settings = {
        "attacks": ["pgd", "square"],
        "epsilons": [0.1, 0.2],
        "images": 300,
        "options": {"square": {"queries": 7}},
    }
    left = {"sr-capsnet": (0.9, 0.8), "resnet20": (0.7, 0.85), "capsnet": (0.5, 0.5), "convnet-avg": (0.5, 0.5)}
    left["matrix-capsnet"] = (0.4, 0.5)
    failed = [{"name": "black box stronger", "message": "square leaves less"}]
    runs = [
        {
            "network": network,
            "trained_on": "PGD images",
            "seed": seed,
            "settings": {"train_images": 30000, "adversarial": "pgd:0.1:3"},
            "test_accuracy": 0.97 + 0.01 * seed,
            "attacked": {
                "attacks": [
                    {"attack": attack, "epsilon": epsilon, "accuracy": share - epsilon - 0.01 * seed}
                    for attack, share in zip(settings["attacks"], shares, strict=True)
                    for epsilon in settings["epsilons"]
                ],
                "sanity": failed if network == "sr-capsnet" and seed else [],
            },
        }
        for network, shares in left.items()
        for seed in range(3)
    ]
    (tmp_path / "trained").mkdir()
    (tmp_path / "trained" / "evaluation.json").write_text(json.dumps({"runs": runs, "settings": settings}))
    part = script["part"](tmp_path)
    row = "| sr-capsnet | PGD images | 98.00 ± 2.48 | 79.00 ± 2.48 | 69.00 ± 2.48 | 69.00 ± 2.48 | 59.00 ± 2.48 | "
    assert row + "black box stronger (2 of 3) |" in part
    assert "- trained on PGD images, sr-capsnet minus resnet20: +10.0 ± 0.0 points" in part, "69 against 59 %"
    assert "- trained on PGD images, matrix-capsnet minus convnet-avg: -10.0 ± 0.0 points" in part
    assert "`--adversarial pgd:0.1:3`" in part
