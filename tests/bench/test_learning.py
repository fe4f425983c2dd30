"""torchcaps bench learning: curves, targets, and a measurement that continues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tests.helpers.tiny_model  # noqa: F401  (registers the model)
from tests.cli.test_bench import Run, run  # noqa: F401  (a fixture)
from torchcaps.bench import learning
from torchcaps.bench.learning import (
    CASES,
    LearningCase,
    draw_learning,
    measure_curve,
    measure_learning,
    summarize_learning,
)
from torchcaps.errors import TorchcapsError
from torchcaps.train import resolve

SETTINGS = {"model": "tiny", "data": "glyphs", "train_images": 400, "epochs": 2, "batch_size": 32, "device": "cpu"}
TINY = LearningCase("tiny on glyphs", (0.15, 1.0), SETTINGS, {}, {"schedule": "one-cycle:0.02:0.1"})


@pytest.mark.parametrize("name", CASES)
def test_the_recipes_of_every_case_are_valid(name: str) -> None:
    for settings in CASES[name].recipes().values():
        resolve(**settings).check_model()


def test_a_curve_counts_images_and_core_seconds() -> None:
    found = measure_curve(resolve(**SETTINGS, learning_rate=0.01), evaluations=4)
    assert [point["images"] for point in found["points"]] == [192, 360, 552, 720]  # 12 steps for 360 images
    seconds = [point["core_seconds"] for point in found["points"]]
    assert seconds == sorted(seconds)
    assert found["points"][-1]["accuracy"] > 0.15
    assert found["evaluated_images"] <= 5000


def test_the_summary_means_over_the_seeds_that_reach_a_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CASES, "tiny", TINY)

    def row(seed: int, *accuracies: float) -> dict[str, Any]:
        points = [{"images": 10 * n, "core_seconds": float(n), "accuracy": a} for n, a in enumerate(accuracies, 1)]
        return {"case": "tiny", "recipe": "new", "settings": {}, "seed": seed, "points": points}

    rows = [row(0, 0.1, 0.2, 0.3), row(1, 0.2, 0.1, 0.5), row(2, 0.1, 0.1, 0.1)]
    low, high = summarize_learning(rows)
    assert (low["reached"], low["seeds"], low["images"], low["core_seconds"]) == (2, 3, 15, 1.5)
    assert low["final_accuracy"] == pytest.approx(0.3)
    assert (high["reached"], high["images"]) == (0, None)
    for name in ("one.svg", "other.svg"):
        draw_learning(rows, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "other.svg").read_bytes()


def test_an_interrupted_measurement_continues(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setitem(CASES, "tiny", TINY)
    trained, train = [], learning.measure_curve
    monkeypatch.setattr(learning, "measure_curve", lambda config: (trained.append(config.seed), train(config))[1])
    run("bench", "learning", "tiny", "--seeds", "1", "--train-images", "100", "--out", ".")
    assert trained == [0, 0]
    printed = run("bench", "learning", "tiny", "--seeds", "2", "--train-images", "100", "--out", ".")
    assert trained == [0, 0, 1, 1]
    assert "tiny" in printed
    result = json.loads((tmp_path / "learning.json").read_text())
    assert [(row["recipe"], row["seed"]) for row in result["rows"]] == [("old", 0), ("new", 0), ("old", 1), ("new", 1)]
    assert result["environment"]["processor"]
    assert (tmp_path / "learning.svg").is_file()


def test_progress_names_the_training(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(CASES, "tiny", TINY)
    next(measure_learning(["tiny"], 1, train_images=100))
    progress = capfd.readouterr().err
    assert "tiny on glyphs, old recipe, seed 0" in progress
    assert "python" not in progress, "the model's class stands for a model that exists only in Python"


def test_a_foreign_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "learning.json").write_text('{"rows": [1]}')
    with pytest.raises(TorchcapsError, match="was not written by 'torchcaps bench learning'"):
        learning.read_learning(tmp_path / "learning.json")
    with pytest.raises(TorchcapsError, match="case 'capsnet' is unknown: did you mean 'capsnet-mnist'"):
        next(learning.measure_learning(["capsnet"], 1))
