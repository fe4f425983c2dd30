from __future__ import annotations

import json

import pytest
import torch

from tests.evaluate.test_sanity import Restless, Rounded
from tests.helpers.small_models import glyphs, trained
from torchcaps.attacks import create_attack
from torchcaps.data import ImageSet, TensorImages, load_dataset
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate import attack_model, fast_gradient_curves
from torchcaps.evaluate.adversarial import default_epsilons


def images() -> ImageSet:
    return load_dataset("glyphs", "test")


def test_rows_are_what_the_attacks_give() -> None:
    model, batch = trained(), glyphs("test", 30)
    result = attack_model(model, images(), ["fgsm", "transfer"], [0.0, 0.1], images_used=30, baseline=trained(1))
    assert [(row["attack"], row["epsilon"]) for row in result["attacks"]] == [
        ("fgsm", 0.0),
        ("fgsm", 0.1),
        ("transfer", 0.0),
        ("transfer", 0.1),
    ]
    found = create_attack("fgsm")(model, batch.images, batch.labels, epsilon=0.1)
    row = result["attacks"][1]
    assert row["accuracy"] == found.accuracy
    assert row["broken_by"] == found.by_view
    assert row["queries"] == found.queries
    assert row["seconds"] > 0
    with torch.no_grad():
        clean = (model(batch.images).scores.argmax(1) == batch.labels).double().mean().item()
    assert result["clean_accuracy"] == result["attacks"][0]["accuracy"] == pytest.approx(clean)
    assert result["images"] == 30
    assert result["sanity"] == []
    assert result["gradient_of_baseline"]["norm"] > 0
    assert json.loads(json.dumps(result)) == result


def test_warnings_stand_beside_the_figures() -> None:
    masked = attack_model(Rounded(trained()), images(), ["fgsm", "square"], [0.3], images_used=30)
    assert [each["name"] for each in masked["sanity"]] == ["masked gradient", "huge epsilon", "black box stronger"]
    restless = attack_model(Restless(trained()), images(), ["fgsm"], [0.3], images_used=20)
    assert "random outputs" in [each["name"] for each in restless["sanity"]]


def test_the_targeted_curve_rises_and_the_accuracy_falls() -> None:
    result = fast_gradient_curves(trained(), images(), [0.02, 0.1], images_used=40)
    rows = {(row["attack"], row["epsilon"]): row for row in result["attacks"]}
    assert rows["targeted-fgsm", 0.02]["target_success"] < rows["targeted-fgsm", 0.1]["target_success"] <= 1
    for name in ("fgsm", "bim"):
        assert rows[name, 0.1]["accuracy"] < rows[name, 0.02]["accuracy"]
    assert rows["bim", 0.1]["accuracy"] <= rows["fgsm", 0.1]["accuracy"]


def test_targeted_success_does_not_count_images_that_were_on_the_target_already() -> None:
    batch = glyphs("test", 40)
    classes = images().class_names
    mislabeled = TensorImages((batch.images * 255).byte(), (batch.labels + 1) % len(classes), classes)
    rows = attack_model(trained(), mislabeled, ["targeted-fgsm"], [0.0, 0.1], images_used=40)["attacks"]
    assert rows[0]["target_success"] == 0  # nothing was changed
    found = create_attack("targeted-fgsm")(trained(), batch.images, (batch.labels + 1) % len(classes), epsilon=0.1)
    assert found.targets is not None
    assert found.hits is not None
    predicted = trained()(batch.images).scores.argmax(1)
    assert not found.targets.gather(1, predicted.unsqueeze(1)).any()
    assert not (found.hits & ~found.targets).any()
    assert rows[1]["target_success"] == pytest.approx((found.hits.sum() / found.targets.sum()).item())


def test_the_universal_attack_s_course_is_in_the_result() -> None:
    result = attack_model(trained(), images(), ["universal"], [0.3], images_used=20, budget=40)
    history = result["attacks"][0]["history"]
    assert list(history) == ["0", "10", "20"]
    assert history["0"] == pytest.approx(result["clean_accuracy"])
    assert history["20"] == pytest.approx(result["attacks"][0]["accuracy"])


def test_what_is_missing_is_said_before_anything_is_attacked() -> None:
    with pytest.raises(TorchcapsError, match="'transfer' needs another trained model"):
        attack_model(trained(), images(), ["transfer"])
    with pytest.raises(TorchcapsError, match="'square' supports norm linf, not l2"):
        attack_model(trained(), images(), ["square"], norm="l2")
    both = TensorImages(torch.zeros(4, 1, 28, 28, dtype=torch.uint8), torch.zeros(4, 2), tuple("0123456789"))
    with pytest.raises(TorchcapsError, match="one label per image, got 2"):
        attack_model(trained(), both, ["fgsm"])


def test_epsilons_fit_the_kind_of_image() -> None:
    assert default_epsilons(1)[-1] == 0.3
    assert 8 / 255 in default_epsilons(3)
    assert default_epsilons(3, "l2") != default_epsilons(1, "l2")
