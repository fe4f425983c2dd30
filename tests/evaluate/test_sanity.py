"""Each sanity check fails for a model built to fail it, and passes for a normal one."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.helpers.small_models import SmallNet, glyphs, trained
from torchcaps.evaluate.sanity import (
    GradientMeasure,
    check_black_box,
    check_gradient,
    check_huge_epsilon,
    check_random,
    measure_gradient,
)
from torchcaps.layers import Standardize
from torchcaps.models import Model, Output


class Disguised(Model):
    """A wrapper of a trained model; subclasses hide its gradient or its output."""

    def __init__(self, hidden: Model) -> None:
        super().__init__(hidden.image_shape, hidden.classes)
        self.hidden = hidden

    def classify(self, images: Tensor) -> Output:
        return self.hidden(images)


class Rounded(Disguised):
    def classify(self, images: Tensor) -> Output:
        return self.hidden((images * 8).round() / 8)


class Detached(Disguised):
    def classify(self, images: Tensor) -> Output:
        return self.hidden(images.detach())


class Faded(Disguised):
    """The same answers; the gradient a millionth."""

    def classify(self, images: Tensor) -> Output:
        return self.hidden(images.detach() + 1e-6 * (images - images.detach()))


class PartlySaturated(Disguised):
    """So sure of brighter images that rounding leaves no gradient."""

    def classify(self, images: Tensor) -> Output:
        brighter = images.mean((1, 2, 3)) > images.mean((1, 2, 3)).quantile(0.8)
        logits = self.hidden(images).logits * torch.where(brighter, 1e4, 1.0).unsqueeze(1)
        return Output(logits.softmax(1), logits)


class Rounding(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return (images * 8).round() / 8


class Restless(Disguised):
    def classify(self, images: Tensor) -> Output:
        return self.hidden(F.dropout(images, 0.1, training=True))


def sample() -> tuple[Tensor, Tensor]:
    batch = glyphs("test", 40)
    return batch.images, batch.labels


def test_an_honest_model_passes() -> None:
    images, labels = sample()
    measured = measure_gradient(trained(), images, labels)
    assert check_gradient(measured) is None
    assert check_gradient(measured, measure_gradient(trained(1), images, labels)) is None
    assert check_random(trained(), images) is None
    assert check_huge_epsilon(trained(), images, labels) is None
    assert check_huge_epsilon(trained(), images, labels, norm="l2") is None


@pytest.mark.parametrize("kind", [Rounded, Detached])
def test_a_masked_gradient_is_found(kind: type[Disguised]) -> None:
    images, labels = sample()
    measured = measure_gradient(kind(trained()), images, labels)
    assert measured == GradientMeasure(zeros=1.0, norm=0.0, blind=1.0)
    warned = check_gradient(measured)
    assert warned is not None
    assert warned.name == "masked gradient"
    assert "100% of the input gradient is exactly zero" in warned.message
    assert check_gradient(measured, measure_gradient(trained(), images, labels)) is not None


def test_a_faded_gradient_is_found_against_a_reference() -> None:
    images, labels = sample()
    measured, reference = (measure_gradient(model, images, labels) for model in (Faded(trained()), trained()))
    assert measured.norm == pytest.approx(1e-6 * reference.norm, rel=1e-3)
    assert check_gradient(measured) is None
    warned = check_gradient(measured, reference)
    assert warned is not None
    assert "1e+06 times smaller" in warned.message


def test_images_without_any_gradient_are_found() -> None:
    images, labels = sample()
    measured = measure_gradient(PartlySaturated(trained()), images, labels)
    assert 0.1 < measured.zeros == measured.blind <= 0.2
    warned = check_gradient(measured)
    assert warned is not None
    assert "of the images have an input gradient of zero" in warned.message


def test_the_gradient_is_measured_as_defined() -> None:
    images, labels = sample()
    model = trained()
    leaf = images.clone().requires_grad_()
    F.cross_entropy(model(leaf).logits, labels, reduction="sum").backward()
    model.zero_grad(set_to_none=True)
    slope = leaf.grad
    assert slope is not None
    measured = measure_gradient(model, images, labels)
    assert measured.norm == pytest.approx(sum(each.norm().item() for each in slope) / len(slope), rel=1e-5)
    assert measured.zeros == (slope == 0).float().mean().item()


class LeftHalf(SmallNet):
    """Standardizes its input, of which it then sees only the left half."""

    def __init__(self) -> None:
        super().__init__((1, 28, 28), 10, preprocess=Standardize())

    def classify(self, images: Tensor) -> Output:
        seen = torch.ones(28)
        seen[14:] = 0
        return super().classify(images * seen)


def test_zeros_are_counted_at_the_input_of_the_network_behind_the_standardization() -> None:
    images, labels = sample()
    model = LeftHalf()
    assert measure_gradient(model, images, labels).zeros == 0.5
    leaf = model.preprocess(images).requires_grad_()
    slopes = torch.autograd.grad(F.cross_entropy(model.eval().classify(leaf).logits, labels, reduction="sum"), leaf)[0]
    assert measure_gradient(model, images, labels).norm == pytest.approx(slopes.flatten(1).norm(dim=1).mean().item())


def test_a_preprocessing_without_gradient_is_found() -> None:
    images, labels = sample()
    measured = measure_gradient(SmallNet((1, 28, 28), 10, preprocess=Rounding()), images, labels)
    assert measured.blind == 1.0
    assert check_gradient(measured) is not None


def test_random_outputs_are_found() -> None:
    images, _ = sample()
    warned = check_random(Restless(trained()), images)
    assert warned is not None
    assert warned.name == "random outputs"
    in_training = SmallNet((1, 28, 28), 10).train()
    assert check_random(in_training, images) is None, "dropout that evaluation mode turns off is no fault"
    assert in_training.training


@pytest.mark.parametrize("kind", [Rounded, Detached])
def test_an_attack_that_fails_at_a_huge_epsilon_is_found(kind: type[Disguised]) -> None:
    images, labels = sample()
    warned = check_huge_epsilon(kind(trained()), images, labels)
    assert warned is not None
    assert warned.name == "huge epsilon"


def test_a_black_box_that_beats_the_white_ones_is_found() -> None:
    def rows(white: float, black: float) -> list[dict[str, object]]:
        return [
            {"attack": "fgsm", "epsilon": 0.1, "accuracy": 0.99},
            {"attack": "bim", "epsilon": 0.1, "accuracy": white},
            {"attack": "square", "epsilon": 0.1, "accuracy": black},
            {"attack": "transfer", "epsilon": 0.2, "accuracy": 0.0},
        ]

    assert check_black_box(rows(0.3, 0.6)) == []
    assert check_black_box(rows(0.3, 0.295)) == []
    (warned,) = check_black_box(rows(0.6, 0.3))
    assert warned.name == "black box stronger"
    assert "at epsilon 0.1 square" in warned.message
    assert "30.0%" in warned.message
