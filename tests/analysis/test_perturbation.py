from __future__ import annotations

import math

import pytest
import torch

from torchcaps.analysis import perturb_dimensions, reconstruct_with
from torchcaps.analysis.perturbation import RANGES, ranges_for, reconstruction_change
from torchcaps.errors import TorchcapsError
from torchcaps.models import create_model


def test_each_dimension_is_perturbed_separately() -> None:
    model = create_model("capsnet", size="laptop", class_size=4).eval()
    image = torch.rand(1, 28, 28)
    drawn = perturb_dimensions(model, image, reach=0.2, steps=5)
    assert drawn.shape == (4, 5, 1, 28, 28)
    output = model(image.unsqueeze(0))
    winner = int(output.scores.argmax())
    for dimension in range(4):
        for step, move in enumerate([-0.2, -0.1, 0.0, 0.1, 0.2]):
            pose = output.pose.clone()
            pose[0, winner, dimension] += move
            expected = model.reconstruct(output._replace(pose=pose), torch.tensor([winner]))[0]
            torch.testing.assert_close(drawn[dimension, step], expected, rtol=1e-4, atol=1e-6)
    change = reconstruction_change(drawn)
    for dimension in range(4):
        ends = zip(drawn[dimension, 0].flatten().tolist(), drawn[dimension, -1].flatten().tolist(), strict=True)
        assert float(change[dimension]) == pytest.approx(sum(abs(a - b) for a, b in ends) / 784, rel=1e-4)


@pytest.mark.parametrize(
    ("paper", "reach", "step"),
    [
        ("sabour2017", 0.25, 0.05),
        ("choi2019", 0.25 * math.sqrt(9), 0.05 * math.sqrt(9)),
        ("gu2021", 0.2, 0.05),
        ("gu2021-units", 8.0, 2.0),
    ],
)
def test_the_range_of_each_paper(paper: str, reach: float, step: float) -> None:
    found, steps = RANGES[paper].for_size(9)
    assert found == pytest.approx(reach)
    assert 2 * found / (steps - 1) == pytest.approx(step)
    model = create_model("capsnet", size="laptop", class_size=9, hidden=(16, 16)).eval()
    image = torch.rand(1, 28, 28)
    expected = perturb_dimensions(model, image, reach=reach, steps=steps)
    torch.testing.assert_close(perturb_dimensions(model, image, paper=paper), expected)


def test_capsules_and_plain_units_have_different_ranges() -> None:
    small = {"size": "laptop", "filters": 8}
    assert "gu2021-units" in ranges_for(create_model("convnet-cr", **small))
    assert "gu2021-units" not in ranges_for(create_model("convnet-cr-sf", **small)), "squashed units are bounded"
    assert "sabour2017" in ranges_for(create_model("capsnet", **small))


def test_a_model_that_cannot_be_perturbed_is_refused() -> None:
    image = torch.rand(1, 28, 28)
    with pytest.raises(TorchcapsError, match="has no class capsules"):
        perturb_dimensions(create_model("convnet-avg", size="laptop"), image)
    with pytest.raises(TorchcapsError, match="has no decoder"):
        perturb_dimensions(create_model("capsnet", size="laptop", decoder="none"), image)
    with pytest.raises(TorchcapsError, match="perturbation range 'sabour' is unknown: did you mean 'sabour2017'"):
        perturb_dimensions(create_model("capsnet", size="laptop"), image, paper="sabour")


def test_reconstruction_with_the_decoder_of_another_model() -> None:
    small = {"size": "laptop", "filters": 8, "types": 2, "hidden": (16, 16)}
    drawing, other = create_model("capsnet", **small).eval(), create_model("capsnet-l2", **small, decoder="none").eval()
    images, labels = torch.rand(3, 1, 28, 28), torch.tensor([2, 0, 7])
    output = other(images)
    assert drawing.decoder is not None
    for given in (labels, None):
        chosen = output.scores.argmax(1) if given is None else given
        masked = torch.zeros_like(output.pose)
        for number, label in enumerate(chosen.tolist()):
            masked[number, label] = output.pose[number, label]
        expected = drawing.decoder.layers(masked.flatten(1)).view(3, 1, 28, 28)
        torch.testing.assert_close(reconstruct_with(drawing, other, images, given), expected, rtol=1e-4, atol=1e-6)


def test_decoders_that_do_not_fit_are_refused() -> None:
    small = {"size": "laptop", "filters": 8, "types": 2}
    images = torch.rand(2, 1, 28, 28)
    drawing = create_model("capsnet", **small, hidden=(16, 16))
    with pytest.raises(TorchcapsError, match="has no decoder: choose"):
        reconstruct_with(create_model("matrix-capsnet", size="laptop"), drawing, images)
    with pytest.raises(TorchcapsError, match="has no class capsules to reconstruct"):
        reconstruct_with(drawing, create_model("convnet-avg", size="laptop"), images)
    with pytest.raises(TorchcapsError, match="expects 10 capsules of size 16, but CapsNet has 10 of size 8"):
        reconstruct_with(drawing, create_model("capsnet", **small, class_size=8), images)
    with pytest.raises(TorchcapsError, match="expects 10 capsules of size 16, but CapsNet has 5 of size 32"):
        reconstruct_with(drawing, create_model("capsnet", **small, class_size=32, classes=5), images)
