"""The learning rate range test: what it suggests, for any model and a user's own images."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.cli.test_bench import Run, run  # noqa: F401  (a fixture)
from torchcaps.errors import TorchcapsError
from torchcaps.train import resolve
from torchcaps.train.tune_rate import smooth_losses, suggest_peak, tune_rate

SETTINGS: dict[str, Any] = {
    "model": "capsnet",
    "data": "glyphs",
    "train_images": 600,
    "batch_size": 16,
    "device": "cpu",
}
SETTINGS["options"] = {"filters": 8, "types": 2, "hidden": [8, 8]}
RATES = [10 ** (-5 + 0.05 * step) for step in range(101)]


def test_the_suggestion_lies_below_the_rate_at_which_the_loss_rises() -> None:
    losses = [
        1 + 0.2 * (math.log10(rate) + 2) ** 2 for rate in RATES
    ]  # lowest at 0.01, a tenth of the fall higher at 0.09
    assert suggest_peak(RATES, losses) == pytest.approx(0.02)
    falls_again = [loss if rate < 0.2 else 0.1 for rate, loss in zip(RATES, losses, strict=True)]
    assert suggest_peak(RATES, falls_again) == pytest.approx(0.02), "what comes after a rise does not count"
    bumpy = [loss * (1.02 if index == 3 else 1) for index, loss in enumerate(losses)]
    assert suggest_peak(RATES, bumpy) == pytest.approx(0.02), "a rise before the loss has fallen is noise"
    assert suggest_peak(RATES, [1 / (1 + rate) for rate in RATES]) == pytest.approx(0.2), "a loss that only falls"
    with pytest.raises(TorchcapsError, match=r"fell by less than 5% at all learning rates .* use more steps"):
        suggest_peak(RATES, [1 + rate for rate in RATES])


def test_smoothing_removes_noise_and_does_not_lag() -> None:
    losses = [1 + 0.2 * (math.log10(rate) + 2) ** 2 for rate in RATES]
    noisy = [loss + 0.1 * (-1) ** index for index, loss in enumerate(losses)]
    assert smooth_losses(RATES, noisy)[20:80] == pytest.approx(losses[20:80], abs=0.02)
    assert smooth_losses(RATES, [0.7] * 101) == pytest.approx([0.7] * 101)


def test_a_real_model_gets_a_rate_below_the_one_at_which_it_diverges() -> None:
    config = resolve(**SETTINGS)
    found = tune_rate(config, steps=40)
    assert found.rates[0] == pytest.approx(1e-5)
    assert len(found.rates) == len(found.losses) == len(found.smoothed) < 40
    assert min(found.smoothed) < 0.8 * found.smoothed[0]
    assert found.diverged_at is not None
    assert 1e-4 <= found.peak < found.diverged_at / 10
    assert found == tune_rate(config, steps=40), "the same seed gives the same test"
    assert resolve(**SETTINGS, schedule=found.schedule).learning_rate == found.peak


def test_too_few_steps_are_refused() -> None:
    with pytest.raises(TorchcapsError, match="at least 20 steps, got 3"):
        tune_rate(resolve(**SETTINGS), steps=3)


def test_the_command_reads_own_images_and_writes_a_plot(run: Run, tmp_path: Path) -> None:  # noqa: F811
    for number, name in enumerate(("cat", "dog")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for index in range(12):
            Image.new("RGB", (24, 24), (120 * number, 20 * index, 90)).save(tmp_path / "photos" / name / f"{index}.png")
    flags = ["--steps", "24", "--batch-size", "4", "--device", "cpu", "--set", "filters=4", "--set", "types=1"]
    flags += ["--set", "hidden=[4, 4]"]
    printed = run("tune-rate", "capsnet", "--images", "photos,size=20", *flags)
    assert "capsnet (laptop) on photos" in printed, "the folder's name, on one line"
    schedule = printed.partition("Suggested: --schedule ")[2].strip()
    assert schedule.startswith("one-cycle:")
    with Image.open(tmp_path / "tune-rate.png") as plot:
        assert plot.format == "PNG"
        assert plot.width > 500
    found = json.loads(run("tune-rate", "capsnet", "--images", "photos,size=20", *flags, "--out", "a.svg", "--json"))
    assert found["schedule"] == schedule
    assert len(found["rates"]) == len(found["losses"])
    assert found["settings"]["model"] == "capsnet"
    assert (tmp_path / "a.svg").is_file()
