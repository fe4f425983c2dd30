from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.small_models import QUICK, trained
from torchcaps.data import load_dataset
from torchcaps.evaluate import attack_model, save_evaluation
from torchcaps.evaluate.figures import acgan_chart, history_curves


def attacked(seed: int) -> dict[str, Any]:
    images = load_dataset("glyphs", "test")
    return attack_model(trained(), images, ("universal",), (0.05, 0.1), images_used=20, seed=seed, options=QUICK)


def test_an_attack_that_learns_is_drawn_by_its_iterations(tmp_path: Path) -> None:
    found = [attacked(seed) for seed in (0, 1)]
    histories = [run["attacks"][1]["history"] for run in found]
    assert list(histories[0]) == ["0", "2", "4"], "settings of the attack are used"
    assert histories[0] != histories[1]
    figure = history_curves({"mean": found, "first": found[:1]})
    assert [axes.get_title() for axes in figure.axes] == ["universal, epsilon 0.05", "universal, epsilon 0.1"]
    mean, first = figure.axes[1].lines
    assert list(first.get_xdata()) == [0, 2, 4]
    assert list(first.get_ydata()) == pytest.approx([100 * share for share in histories[0].values()])
    both = zip(*map(dict.values, histories), strict=True)
    assert list(mean.get_ydata()) == pytest.approx([50 * (a + b) for a, b in both])
    run = {"run": "a", "tests": {}, "attacked": found[0], "refused": {}}
    names = [path.name for path in save_evaluation(tmp_path, [run])]
    assert names == ["evaluation.json", "attacks.svg", "attacks.png", "iterations.svg", "iterations.png"]


def test_errors_on_drawings_are_averaged_over_seeds() -> None:
    results = {"a": [{"error_by_epoch": {"1": 0.2, "2": 0.1}}, {"error_by_epoch": {"1": 0.4, "2": 0.1}}]}
    axes = acgan_chart(results).axes[0]
    assert list(axes.lines[0].get_xdata()) == [1, 2]
    assert list(axes.lines[0].get_ydata()) == pytest.approx([30, 10])
    assert axes.get_ylabel() == "error, %"
