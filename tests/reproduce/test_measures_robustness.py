from __future__ import annotations

import pytest
import torch

from tests.helpers.small_runs import measured, small_run
from torchcaps.attacks import create_attack
from torchcaps.data import load_dataset
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate import attack_model
from torchcaps.evaluate.sanity import measure_gradient
from torchcaps.train import RunFolder, load


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    folder = tmp_path_factory.mktemp("runs")
    return [small_run(folder / f"tiny-{seed}", seed=seed, learning_rate=0.01, steps=40) for seed in (0, 1)]


def test_accuracy_at_an_epsilon_and_over_several(runs: list[RunFolder]) -> None:
    model, batch = load(runs[0].path), load_dataset("glyphs", "test").batch(torch.arange(40))
    wanted = [
        100 * create_attack("bim")(model, batch.images, batch.labels, epsilon=epsilon).accuracy
        for epsilon in (0.02, 0.1)
    ]
    one = measured("attack-accuracy", runs[0], attack="bim", epsilon=0.1, images=40)
    assert (one.value, one.images) == (pytest.approx(wanted[1]), 40)
    several = measured("attack-accuracy", runs[0], attack="bim", epsilons=[0.02, 0.1], images=40)
    assert several.value is None
    assert several.details["curve"] == [[0.02, pytest.approx(wanted[0])], [0.1, pytest.approx(wanted[1])]]
    assert wanted[1] < wanted[0] < several.details["clean_accuracy"] <= 100
    for wrong in ({}, {"epsilon": 0.1, "epsilons": [0.1]}):
        with pytest.raises(TorchcapsError, match="either one 'epsilon' or a list of 'epsilons'"):
            measured("attack-accuracy", runs[0], **wrong)


def test_warnings_of_the_sanity_checks_come_along(runs: list[RunFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ZEROS", "LEFT_AT_HUGE"):
        monkeypatch.setattr(f"torchcaps.evaluate.sanity.{name}", -1)  # now everything is suspicious
    found = measured("attack-accuracy", runs[0], epsilon=0.1, images=20)
    assert [text.partition(":")[0] for text in found.warnings] == ["masked gradient", "huge epsilon"]
    assert "is exactly zero" in measured("gradient-zeros", runs[0], images=20).warnings[0]


def test_success_of_a_targeted_attack(runs: list[RunFolder]) -> None:
    images = load_dataset("glyphs", "test")
    row = attack_model(load(runs[0].path), images, ["targeted-fgsm"], [0.2], images_used=40)["attacks"][0]
    found = measured("targeted-success", runs[0], epsilon=0.2, images=40)
    assert found.value == pytest.approx(100 * row["target_success"])
    assert 0 < row["target_success"] < 1


def test_transfer_from_another_run(runs: list[RunFolder]) -> None:
    batch = load_dataset("glyphs", "test").batch(torch.arange(40))
    attack = create_attack("transfer", source=load(runs[1].path))
    wanted = attack(load(runs[0].path), batch.images, batch.labels, epsilon=0.2).accuracy
    found = measured("transfer-accuracy", runs[0], {"source": runs[1]}, epsilon=0.2, images=40)
    assert (found.value, found.images) == (pytest.approx(100 * wanted), 40)
    assert found.value < found.details["clean_accuracy"]
    with pytest.raises(TorchcapsError, match="tiny-0 needs a training in the role 'source'"):
        measured("transfer-accuracy", runs[0], epsilon=0.2)


def test_universal_attack_by_iteration(runs: list[RunFolder]) -> None:
    batch = load_dataset("glyphs", "test").batch(torch.arange(40))
    attack = create_attack("universal", iterations=20)
    wanted = attack(load(runs[0].path), batch.images, batch.labels, epsilon=0.3)
    found = measured("universal-accuracy", runs[0], epsilon=0.3, iterations=20, images=40)
    assert found.value == pytest.approx(100 * wanted.accuracy)
    assert found.details["curve"] == [[step, pytest.approx(100 * share)] for step, share in wanted.history.items()]
    assert [step for step, _ in found.details["curve"]] == [0, 10, 20]
    assert found.value == pytest.approx(found.details["curve"][-1][1])


def test_zeros_of_the_gradient(runs: list[RunFolder]) -> None:
    batch = load_dataset("glyphs", "test").batch(torch.arange(40))
    wanted = measure_gradient(load(runs[0].path), batch.images, batch.labels)
    found = measured("gradient-zeros", runs[0], images=40)
    assert found.value == 100 * wanted.zeros
    assert found.details["norm"] == wanted.norm
