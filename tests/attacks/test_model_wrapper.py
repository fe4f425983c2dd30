"""Attacks on plain PyTorch classifiers: bounds and preprocessing are arguments, the guarantees are the same."""

from __future__ import annotations

import copy
from typing import Any

import foolbox
import pytest
import torch
from torch import Tensor, nn

from tests.helpers.small_models import QUICK, SmallNet, quick
from torchcaps.attacks import FGSM, PGD, AttackRecord, Transfer, attacks
from torchcaps.attacks.norms import NORMS
from torchcaps.errors import TorchcapsError

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
each_case = pytest.mark.parametrize(
    ("record", "norm"),
    [(record, norm) for record in attacks for norm in record.norms if not record.needs_capsules],
    ids=lambda value: getattr(value, "name", value),
)


class PlainCNN(nn.Module):
    """A plain convolutional network without torchcaps."""

    def __init__(self, classes: int = 5) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(288, classes))

    def forward(self, images: Tensor) -> Tensor:
        return 20 * self.head(self.features(images))


def normalize(images: Tensor) -> Tensor:
    return (images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


def classified(model: nn.Module, count: int, scale: float = 1.0, shift: float = 0.0) -> tuple[Tensor, Tensor]:
    """Random images within the given bounds, with the labels that the model predicts, except for the first."""
    unit = torch.rand(count, 3, 8, 8)
    with torch.no_grad():
        labels = model.eval()(normalize(unit)).argmax(1)
    labels[0] = (labels[0] + 1) % 5
    return unit * scale + shift, labels


@each_case
@pytest.mark.parametrize("bounds", [(0, 1), (0, 255), (-1, 1)])
def test_the_result_is_within_epsilon_and_bounds_and_judged_on_clipped_pixels(
    record: AttackRecord, norm: str, bounds: tuple[float, float]
) -> None:
    torch.manual_seed(0)
    model, (low, high) = PlainCNN(), bounds
    span = high - low
    images, labels = classified(model, 10, span, low)

    def preprocessing(pixels: Tensor) -> Tensor:
        return normalize((pixels - low) / span)

    epsilon = (0.3 if norm == "linf" else 3.0) * span
    options = QUICK.get(record.name, {})
    if record.needs_source:
        options = {"source": model, "source_preprocessing": preprocessing}
    elif record.name in ("universal", "universal-pgd"):
        options = {"iterations": 40, "batch_size": 10}
    attack = record.build(**options, epsilon=epsilon, norm=norm)
    result = attack(model, images, labels, bounds=bounds, preprocessing=preprocessing)
    assert NORMS[norm].size(result.images - images).max() <= epsilon * (1 + 1e-5) + 1e-6
    assert low <= result.images.min()
    assert result.images.max() <= high
    with torch.no_grad():
        predictions = model.eval()(preprocessing(result.images)).argmax(1)
    assert torch.equal(result.predictions, predictions)
    assert torch.equal(result.success, predictions != labels)
    assert result.success[0]
    assert result.success[1:].any(), "the attack works"


def test_mean_and_standard_deviation_are_the_same_as_a_function() -> None:
    model = PlainCNN()
    images, labels = classified(model, 10)
    attack = PGD(epsilon=0.05, steps=3)
    by_numbers = attack(model, images, labels, preprocessing=(MEAN, STD))
    by_function = attack(model, images, labels, preprocessing=normalize)
    torch.testing.assert_close(by_numbers.images, by_function.images, rtol=0, atol=1e-6)
    whole = nn.Sequential(nn.Identity(), model)
    whole[0].forward = normalize  # type: ignore[method-assign]
    inside = attack(whole, images, labels)
    torch.testing.assert_close(inside.images, by_function.images, rtol=0, atol=1e-6)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_fgsm_on_a_plain_network_agrees_with_foolbox(norm: str) -> None:
    model = PlainCNN().eval()
    images, labels = classified(model, 12)
    images, labels, epsilon = images[1:], labels[1:], {"linf": 0.03, "l2": 0.3}[norm]
    result = FGSM(epsilon=epsilon, norm=norm)(model, images, labels, logits="logits", preprocessing=(MEAN, STD))
    preprocessing = {"mean": MEAN, "std": STD, "axis": -3}
    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu", preprocessing=preprocessing)
    name = {"linf": "LinfFastGradientAttack", "l2": "L2FastGradientAttack"}[norm]
    expected = getattr(foolbox.attacks, name)().run(wrapped, images, labels, epsilon=epsilon)
    torch.testing.assert_close(result.images, expected, rtol=0, atol=1e-5)


def test_the_plain_model_is_left_unchanged() -> None:
    model = PlainCNN()
    images, labels = classified(model, 6)
    model.train()
    model.head[0].eval()
    model.head[2].bias.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    PGD(epsilon=0.1, steps=2)(model, images, labels, preprocessing=(MEAN, STD))
    assert [module.training for module in model.head] == [False, True, True]
    assert not model.head[2].bias.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_plain_source_is_transferred_to_a_torchcaps_model() -> None:
    source, model = PlainCNN(), SmallNet((3, 8, 8), 5)
    images, labels = classified(source, 8)
    result = Transfer(source=source, source_preprocessing=(MEAN, STD))(model, images, labels, epsilon=0.1)
    assert result.queries == 0
    assert NORMS["linf"].size(result.images - images).max() <= 0.1 + 1e-6


class Returns(nn.Module):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def forward(self, images: Tensor) -> Any:
        return self.value


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (lambda images: images, {}, "needs a torch.nn.Module, got function"),
        (Returns((torch.zeros(1, 5), None)), {}, r"Returns returned tuple .* returns the logits alone"),
        (Returns(torch.zeros(1, 5, 2)), {}, r"logits \(B, classes\) .* returned shape \(1, 5, 2\)"),
        (Returns(torch.zeros(1, 1)), {}, r"at least 2 classes, .* shape \(1, 1\)"),
        (PlainCNN(), {"bounds": (1, 0)}, r"bounds must be two finite numbers .* got \(1, 0\)"),
        (PlainCNN(), {"bounds": (0.5, 1)}, r"pixels must lie in \[0.5, 1\], got 0"),
        (PlainCNN(), {"preprocessing": 3}, r"preprocessing must be a callable or \(mean, standard deviation\)"),
        (PlainCNN(), {"preprocessing": ((0.5, 0.5), (1, 1))}, "for each of 3 channels"),
        (PlainCNN(), {"preprocessing": (0.5, 0.0)}, "a standard deviation above 0"),
        (PlainCNN(), {"epsilon": None}, "FGSM needs an epsilon"),
        (SmallNet((3, 8, 8), 5), {"bounds": (0, 255)}, "leave out bounds and preprocessing"),
        (SmallNet((3, 8, 8), 5), {"preprocessing": (0.5, 0.5)}, "leave out bounds and preprocessing"),
    ],
)
def test_wrong_models_and_arguments_are_refused(model: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TorchcapsError, match=message):
        quick("fgsm")(model, torch.rand(3, 3, 8, 8), torch.tensor([0, 1, 2]), **{"epsilon": 0.1, **options})
