"""Which model is better: paired differences over seeds, and settings of each model on the command line."""

from __future__ import annotations

import math
import statistics
from typing import Any

import pytest

from torchcaps.compare.table import best_model, difference_sentences, differences, percent
from torchcaps.train import resolve
from torchcaps.train.loop import run_title


def results(*accuracies: float, reached: bool | None = None) -> list[dict[str, Any]]:
    return [{"test_accuracy": each, "validation_accuracy": each, "reached": reached} for each in accuracies]


SEEDS = {"capsnet": results(0.90, 0.93, 0.96), "mine": results(0.92, 0.951, 0.979), "other": results(0.96, 0.90, 0.93)}


def test_differences_are_paired_by_seed() -> None:
    found = differences(SEEDS)
    paired = [100 * (mine - first) for mine, first in ((0.92, 0.90), (0.951, 0.93), (0.979, 0.96))]
    half = 4.30265 * statistics.stdev(paired) / math.sqrt(3)
    assert found["mine"].center == pytest.approx(statistics.fmean(paired))
    assert found["mine"].half_width == pytest.approx(half, rel=1e-4)
    assert found["mine"].low > 0
    assert found["other"].low < 0 < found["other"].high
    said = difference_sentences(SEEDS)
    assert said[0] == "mine minus capsnet: +2.00 ± 0.25 percentage points of test accuracy, better."
    assert said[1].endswith("no difference can be told.")
    assert said[2] == "± is half of a 95 % interval over 3 seeds; differences are paired by seed."


def test_the_best_is_marked_only_where_it_can_be_told() -> None:
    assert best_model(SEEDS) is None, "'other' may be better than 'mine'"
    assert best_model({name: SEEDS[name] for name in ("capsnet", "mine")}) == "mine"
    one = {"a": results(0.9), "b": results(0.5)}
    assert best_model(one) is None
    assert difference_sentences(one) == ["One seed does not tell which model is better: use --seeds 3 or more."]
    assert differences({"a": results(0.9, 0.8), "b": results(0.5, 0.6, reached=False)}) == {}


def test_plus_minus_is_half_an_interval() -> None:
    assert percent([0.5]) == "50.00"
    assert percent([0.5, 0.52, 0.54]) == f"52.00 ± {4.30265 * 2 / math.sqrt(3):.2f}"


def test_progress_lines_name_settings_and_seed() -> None:
    config = resolve(model="capsnet", data="glyphs", seed=2, options={"routing": "uniform"})
    assert run_title(config) == "capsnet routing=uniform seed 2 on glyphs"
    config = resolve(model="capsnet", data="glyphs", options={"routing_options": {"iterations": 2}, "filters": 8})
    assert run_title(config) == "capsnet routing_options={'iterations': 2} filters=8 seed 0 on glyphs"
