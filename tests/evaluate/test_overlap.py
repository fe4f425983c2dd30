from __future__ import annotations

import pytest
import torch

from tests.helpers.small_models import trained
from tests.reference import robustness as reference
from torchcaps.data import TensorImages, load_dataset
from torchcaps.data.datasets.multimnist import OverlaidDigits
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate import measure_overlap
from torchcaps.evaluate.figures import overlap_sheet
from torchcaps.evaluate.overlap import has_conditional_decoder, overlap_reconstructions, overlap_set
from torchcaps.models import Model, create_model


def overlaid() -> OverlaidDigits:
    digits = load_dataset("glyphs", "test")
    assert isinstance(digits, TensorImages)
    return OverlaidDigits(digits, seed=0, per_digit=1)


def small_capsnet(side: int, **more: str) -> Model:
    """Its drawings of one class differ clearly from those of another, although it has learned nothing."""
    model = create_model("capsnet", image_size=side, filters=4, types=2, hidden=(8, 8), **more).eval()
    if model.decoder is not None:
        with torch.no_grad():
            model.decoder.layers[0].weight.mul_(20_000)
            model.decoder.layers[4].weight.mul_(3)
    return model


@pytest.mark.parametrize("side", [28, 36, 40])
def test_overlap_agrees_with_one_image_at_a_time(side: int) -> None:
    model, images = small_capsnet(side), overlaid()
    count = 12
    result = measure_overlap(model, images, images_used=count, pairs=side == 36)
    margin = (side - 36) // 2
    right, errors, of_image, of_black = 0, [], [], []
    for index in range(count):
        batch = images.batch(torch.tensor([index]))
        assert batch.targets is not None
        pad = torch.nn.functional.pad
        image, targets = pad(batch.images, [margin] * 4), pad(batch.targets[0], [margin] * 4)
        with torch.no_grad():
            output = model(image)
            drawn = [model.reconstruct(output, label.view(1))[0, 0] for label in batch.labels[0]]
        right += reference.highest(output.scores[0].tolist(), 2) == set(batch.labels[0].tolist())
        for number in (0, 1):
            wanted = targets[number, 0].tolist()
            errors.append(reference.squared_error(drawn[number].tolist(), wanted))
            of_image.append(reference.squared_error(image[0, 0].tolist(), wanted))
            of_black.append(reference.squared_error([[0.0] * side] * side, wanted))
    assert result["accuracy"] == right / count
    assert result["drawing_error"] == pytest.approx(sum(errors) / len(errors), rel=1e-4)
    assert result["error_of_image"] == pytest.approx(sum(of_image) / len(of_image), rel=1e-5)
    assert result["error_of_black"] == pytest.approx(sum(of_black) / len(of_black), rel=1e-5)
    assert ("single digits" in result["about"]) == (side != 36)


def test_a_digit_alone_is_drawn_only_from_its_own_capsule() -> None:
    assert has_conditional_decoder(small_capsnet(36))
    for name in ("none", "normal"):
        model = small_capsnet(36, decoder=name)
        assert not has_conditional_decoder(model)
        assert measure_overlap(model, overlaid(), images_used=4, pairs=True)["drawing_error"] is None


def test_the_sheet_has_each_digit_beside_its_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = small_capsnet(28), overlaid()
    sheet = overlap_reconstructions(model, images, 3)
    assert sheet.shape == (3, 5, 1, 28, 28)
    batch = images.batch(torch.arange(3))
    assert batch.targets is not None
    assert torch.equal(sheet[:, 1], batch.targets[:, 0, :, 4:-4, 4:-4])
    with torch.no_grad():
        output = model(sheet[:, 0])
        for number in (0, 1):
            drawn = model.reconstruct(output, batch.labels[:, number])
            assert torch.allclose(sheet[:, 2 + 2 * number], drawn, atol=1e-4)
    assert (sheet[:, 2] - sheet[:, 4]).abs().max() > 0.05
    assert torch.equal((sheet[:, 1] + sheet[:, 3]).clamp(max=1), sheet[:, 0])
    monkeypatch.setattr("torchcaps.evaluate.figures.overlap_set", lambda model, data: images)
    assert overlap_sheet(model, "multimnist", 3).axes[0].get_yticklabels()[2].get_text() == "decoded"


def test_what_is_no_pair_of_digits_is_refused() -> None:
    with pytest.raises(TorchcapsError, match="overlaid digits need a model trained on MNIST digits"):
        overlap_set(trained(), "glyphs")
    with pytest.raises(TorchcapsError, match="the overlap test needs images with two labels"):
        measure_overlap(trained(), load_dataset("glyphs", "test"), images_used=4, pairs=False)
