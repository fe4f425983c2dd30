from __future__ import annotations

import pytest
import torch

from tests.helpers.small_models import SmallNet, trained
from tests.reference import robustness as reference
from tests.reference.data_loops import Picture
from torchcaps.data import TensorImages, load_dataset
from torchcaps.data.base import as_floats
from torchcaps.data.datasets.affnist import change_digits
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate import measure_affine
from torchcaps.evaluate.affine import FACTORS, affine_curves, affine_sets
from torchcaps.evaluate.clean import center_on_canvas, first_images


def small_images(count: int = 8) -> TensorImages:
    pixels = torch.randint(256, (count, 1, 6, 6), dtype=torch.uint8)
    return TensorImages(pixels, torch.randint(5, (count,)), tuple("abcde"))


def test_curves_agree_with_pixels_moved_one_by_one() -> None:
    model, images = SmallNet().eval(), small_images()

    def answer(picture: Picture) -> list[float]:
        with torch.no_grad():
            return model(torch.tensor(picture).view(1, 1, 6, 6)).scores[0].tolist()

    curves = affine_curves(model, images, steps=3)
    pictures = as_floats(images.images)[:, 0].tolist()
    assert list(curves) == list(FACTORS)
    for factor, curve in curves.items():
        for strength, accuracy in zip(curve["strength"], curve["accuracy"], strict=True):
            wanted = reference.affine_accuracy(answer, pictures, images.labels.tolist(), factor, strength)
            assert accuracy == pytest.approx(wanted), (factor, strength)
    assert curves["shift_x"]["strength"] == pytest.approx([-1.2, 0, 1.2]), "8 pixels of 40, at a side of 6"
    assert curves["rotation"]["strength"] == [-20, 0, 20]


def test_own_images_are_named_by_their_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchcaps.evaluate.affine.load_dataset", lambda data, split: small_images())
    found = affine_sets(SmallNet(), "images:/home/me/photos,size=6,grey=1", None)
    assert found.about.startswith("6x6 test images of photos changed in place")


def test_a_trained_model_loses_accuracy_under_change() -> None:
    model = trained()
    result = measure_affine(model, affine_sets(model, "glyphs", 100), steps=3)
    assert "28x28 test images of glyphs changed in place" in result["about"]
    assert result["images"] == 100
    assert result["accuracy"] < result["upright_accuracy"]
    for curve in result["curves"].values():
        assert curve["accuracy"][1] == result["upright_accuracy"], "the middle is no change"
        assert min(curve["accuracy"][0], curve["accuracy"][2]) < result["upright_accuracy"]


def test_images_changed_in_place_keep_their_size_and_shift_in_proportion() -> None:
    whole = load_dataset("glyphs", "test")
    assert isinstance(whole, TensorImages)
    changed = change_digits(whole, seed=0, size=(28, 28))
    assert changed.shape == (1, 28, 28)
    assert 5 < changed.factors["shift_x"].abs().max() <= 8 * 28 / 40
    assert torch.equal(changed.factors["rotation"], change_digits(whole, seed=0).factors["rotation"])


def test_a_canvas_cuts_off_or_adds_black() -> None:
    picture = torch.arange(36.0).view(1, 1, 6, 6)
    assert torch.equal(center_on_canvas(picture, 4), picture[:, :, 1:5, 1:5])
    larger = center_on_canvas(picture.unsqueeze(0), 8)
    assert larger.shape == (1, 1, 1, 8, 8)
    assert torch.equal(larger[0, :, :, 1:7, 1:7], picture)
    assert larger.sum() == picture.sum()


def test_two_labels_are_refused() -> None:
    both = TensorImages(torch.zeros(4, 1, 28, 28, dtype=torch.uint8), torch.zeros(4, 2), tuple("0123456789"))
    with pytest.raises(TorchcapsError, match="one label per image, got 2"):
        first_images(trained(), both, None)
