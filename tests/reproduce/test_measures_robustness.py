from __future__ import annotations

import math

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


def test_results_contain_the_warnings_of_the_sanity_checks(
    runs: list[RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ZEROS", "LEFT_AT_HUGE"):
        monkeypatch.setattr(f"torchcaps.evaluate.sanity.{name}", -1)  # now everything is suspicious
    found = measured("attack-accuracy", runs[0], epsilon=0.1, images=20)
    assert [text.partition(":")[0] for text in found.warnings] == ["masked gradient", "huge epsilon"]
    assert "is exactly zero" in measured("gradient-zeros", runs[0], images=20).warnings[0]


@pytest.fixture(scope="module")
def standardizing(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    settings = {"options": {"filters": [4, 8], "hidden": 64}, "epochs": 20, "steps": 100, "learning_rate": 0.01}
    return small_run(tmp_path_factory.mktemp("standardizing") / "cnn", model="cnn-hinton2018", **settings)


def test_epsilon_in_standard_deviations(standardizing: RunFolder) -> None:
    """As in hinton2018, whose images are normalized before the attack: no bounds, no second normalization."""
    model, batch = load(standardizing.path), load_dataset("glyphs", "test").batch(torch.arange(40))
    inputs = model.preprocess(batch.images).requires_grad_()
    logits = model.classify(inputs).logits
    (slope,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, batch.labels, reduction="sum"), inputs)
    attacked = logits.argmax(1) == batch.labels
    curve = []
    for epsilon in (0.1, 0.5):
        changed = model.classify(inputs + epsilon * slope.sign()).logits.argmax(1)
        curve.append([epsilon, pytest.approx(100 * (attacked & (changed == batch.labels)).double().mean().item())])
    settings = {"attack": "fgsm", "logits": "logits", "images": 40, "units": "deviations"}
    found = measured("attack-accuracy", standardizing, epsilons=[0.1, 0.5], **settings)
    assert found.details["curve"] == curve
    assert found.details["clean_accuracy"] == pytest.approx(100 * attacked.double().mean().item())
    assert found.details["units"] == "deviations"
    assert found.details["gradient"]["norm"] == pytest.approx(slope.flatten(1).norm(dim=1).mean().item(), rel=1e-3)
    pixels = measured("attack-accuracy", standardizing, epsilons=[0.1, 0.5], **settings | {"units": "pixels"})
    assert pixels.details["curve"] != curve  # a pixel has a deviation well below 1
    transfer = measured("transfer-accuracy", standardizing, {"source": standardizing}, epsilon=0.5, units="deviations")
    assert transfer.value is not None
    targeted = measured("targeted-success", standardizing, epsilon=0.5, images=40, units="deviations")
    assert targeted.value is not None


def test_units_of_epsilon_are_checked(runs: list[RunFolder]) -> None:
    with pytest.raises(TorchcapsError, match="units 'deviation' is unknown: did you mean 'deviations'"):
        measured("attack-accuracy", runs[0], epsilon=0.1, units="deviation")
    with pytest.raises(TorchcapsError, match="needs models that standardize their images"):
        measured("attack-accuracy", runs[0], epsilon=0.1, images=20, units="deviations")


def test_the_lowest_accuracy_of_an_axis(runs: list[RunFolder]) -> None:
    found = measured("attack-accuracy", runs[0], epsilons=[0.02, 0.3, 0.1], images=40, lowest=True)
    assert found.value == min(share for _, share in found.details["accuracies"])
    assert "curve" not in found.details  # the curve has a cell of its own
    assert found.images == 40


def test_size_of_the_gradient(standardizing: RunFolder) -> None:
    model, batch = load(standardizing.path), load_dataset("glyphs", "test").batch(torch.arange(40))
    inputs = model.preprocess(batch.images).requires_grad_()
    loss = torch.nn.functional.cross_entropy(model.classify(inputs).logits, batch.labels, reduction="sum")
    (slope,) = torch.autograd.grad(loss, inputs)
    norm = slope.flatten(1).norm(dim=1).mean().item()
    assert measured("gradient-size", standardizing, images=40).value == pytest.approx(math.log10(norm), abs=1e-3)


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


def test_other_universal_attacks_by_name(runs: list[RunFolder]) -> None:
    batch = load_dataset("glyphs", "test").batch(torch.arange(40))
    settings = {"iterations": 10, "images": 40}
    values = []
    for attack, options in (("universal", {"loss": "cross-entropy"}), ("universal-pgd", {})):
        built = create_attack(attack, iterations=10, **options)
        wanted = built(load(runs[0].path), batch.images, batch.labels, epsilon=0.3)
        found = measured("universal-accuracy", runs[0], attack=attack, epsilon=0.3, **settings, **options)
        assert found.value == pytest.approx(100 * wanted.accuracy)
        values.append(found.value)
    assert values[0] != values[1]


def test_an_unscaled_epsilon_leaves_few_predicted_classes(runs: list[RunFolder]) -> None:
    batch = load_dataset("glyphs", "test").batch(torch.arange(200))
    source, model = load(runs[1].path), load(runs[0].path)
    pixels = batch.images.clone().requires_grad_()
    torch.nn.functional.cross_entropy(source(pixels).logits, batch.labels, reduction="sum").backward()
    assert pixels.grad is not None
    with torch.no_grad():
        predicted = model(batch.images + 8 * pixels.grad.sign()).scores.argmax(1)
    found = measured("unclipped-transfer-accuracy", runs[0], {"source": runs[1]}, epsilon=8.0, images=200)
    assert found.value == pytest.approx(100 * (predicted == batch.labels).double().mean().item())
    assert sum(found.details["answers"]) == pytest.approx(100)
    assert found.details["answers"] == pytest.approx((100 * torch.bincount(predicted, minlength=10) / 200).tolist())
    with pytest.raises(TorchcapsError, match="needs a training in the role 'source'"):
        measured("unclipped-transfer-accuracy", runs[0])


def test_zeros_of_the_gradient(runs: list[RunFolder]) -> None:
    batch = load_dataset("glyphs", "test").batch(torch.arange(40))
    wanted = measure_gradient(load(runs[0].path), batch.images, batch.labels)
    found = measured("gradient-zeros", runs[0], images=40)
    assert found.value == 100 * wanted.zeros
    assert found.details["norm"] == wanted.norm
