"""Measures that make something first: time of steps, images of a GAN."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import torchcaps.reproduce.measures.accuracy as generated
from tests.helpers.small_runs import measured, small_run
from torchcaps.bench.timing import TimingBudget
from torchcaps.bench.workload import Workload as Timed
from torchcaps.data import datasets
from torchcaps.data.base import as_floats
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate.acgan import GanSettings, generate
from torchcaps.models import models
from torchcaps.reproduce.measures import cost
from torchcaps.train import RunFolder, load, resolve


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    folder = tmp_path_factory.mktemp("runs")
    return [small_run(folder / f"tiny-{batch}", batch_size=batch, train_images=100, steps=2) for batch in (10, 40)]


def test_times_are_shares_of_the_baselines(runs: list[RunFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "BUDGET", TimingBudget(rounds=3))
    seconds = {10: 3.0, 40: 2.0}  # of a step by its batch
    monkeypatch.setattr(
        cost,
        "time_workloads",
        lambda jobs, *_: {name: [seconds[net.batch]] * 3 for name, (net, form) in jobs.items()},
    )
    others = {"baseline": runs[1]}
    assert measured("step-time-ratio", runs[0], others).value == 1.5
    epoch = measured("epoch-time-ratio", runs[0], others)
    whole = datasets.get("glyphs").splits["train"]
    assert epoch.details["steps"] == {"own": whole // 10, "baseline": whole // 40}
    assert epoch.value == pytest.approx(1.5 * 4)
    with pytest.raises(TorchcapsError, match="another one in the role 'baseline'"):
        measured("step-time-ratio", runs[0])


def test_both_networks_are_timed_in_the_same_form(runs: list[RunFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper compares plain implementations: fused dynamic routing against unfused rivals is another question."""
    forms: list[set[str]] = []
    monkeypatch.setattr(
        cost,
        "time_workloads",
        lambda jobs, *_: forms.append({form for _, form in jobs.values()}) or {name: [1.0] for name in jobs},
    )
    for settings in ({}, {"form": "plain"}):
        found = measured("step-time-ratio", runs[0], {"baseline": runs[1]}, **settings)
        assert found.details["form"] in forms[-1]
    assert forms == [{"torchcaps"}, {"plain"}]


def test_an_epoch_is_timed_in_the_size_and_form_that_the_paper_compares(
    runs: list[RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[tuple[str, int, str]] = []
    monkeypatch.setattr(
        cost,
        "time_workloads",
        lambda jobs, *_: (
            timed.extend((net.size, net.batch, form) for net, form in jobs.values()) or {name: [1.0] for name in jobs}
        ),
    )
    measured("epoch-time-ratio", runs[0], {"baseline": runs[1]}, form="plain", size="paper")
    batches = [models.get(run.config().model).recipe.batch_size for run in runs]
    assert timed == [("paper", batch, "plain") for batch in batches]


def test_parameters_as_a_share_of_the_baselines(tmp_path: Path) -> None:
    few = {"train_images": 40, "steps": 1, "batch_size": 8}
    own, baseline = (
        small_run(tmp_path / model, model=model, options={"hidden": [16, 16]}, **few)
        for model in ("ar-capsnet", "capsnet")
    )
    found = measured("parameter-ratio", own, {"baseline": baseline})
    counts = [measured("parameters", each).value or 0 for each in (own, baseline)]
    assert found.value == pytest.approx(counts[0] / counts[1])
    assert found.details == {"parameters": {"own": counts[0], "baseline": counts[1]}}


def test_a_step_is_really_timed(runs: list[RunFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "BUDGET", TimingBudget(rounds=3))
    found = measured("step-time-ratio", runs[0], {"baseline": runs[1]})
    assert found.value is not None
    assert found.value > 0
    assert found.details["batch"] == {"own": 10, "baseline": 40}
    assert found.details["step_seconds"]["own"]["rounds"] == 3


def test_what_is_timed_is_what_the_run_trains() -> None:
    options = {"filters": 8, "types": 2, "decoder": "none"}
    config = resolve(model="capsnet", data="turntable-small", options=options, loss="cross-entropy", batch_size=32)
    subject = Timed(cost.bench_net(config), "torchcaps")
    assert subject.images.shape == (32, 2, 32, 32)
    assert subject.model.classes == 5
    assert subject.model.decoder is None
    assert subject.objective.loss.name == "cross-entropy"


def test_errors_on_what_a_gan_draws(tmp_path: Path, runs: list[RunFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = GanSettings(data="glyphs", train_images=8, batch=8)
    monkeypatch.setattr("torchcaps.evaluate.acgan.cache_folder", lambda: tmp_path)
    monkeypatch.setitem(generated.SIZES, "laptop", tiny)
    with pytest.raises(
        TorchcapsError, match="generated digits need a model trained on MNIST digits, got one trained on glyphs"
    ):
        measured("acgan-error", runs[0], epoch=1)
    monkeypatch.setattr(generated, "check_digits", lambda *given: None)  # glyphs stand in for digits
    found = measured("acgan-error", runs[0], epoch=2, images=30)
    drawn = generate(tiny.folder(), 2, 30, seed=0)
    with torch.no_grad():
        answers = load(runs[0].path)(as_floats(drawn.images)).scores.argmax(1)
    assert found.value == pytest.approx(100 * (answers != drawn.labels).double().mean().item())
    assert found.images == 30
    assert found.details["gan"]["train_images"] == 8
    with pytest.raises(TorchcapsError, match="after epochs 1 to 5, got 6"):
        measured("acgan-error", runs[0], epoch=6)
