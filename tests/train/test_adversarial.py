"""Adversarial training."""

from __future__ import annotations

import pytest
import torch

from tests.helpers.small_models import SmallCapsules, SmallNet
from torchcaps.errors import TorchcapsError
from torchcaps.losses import one_hot
from torchcaps.models import Model
from torchcaps.train import resolve
from torchcaps.train.adversarial import parse_adversarial
from torchcaps.train.objective import Objective


def loss_of(model: Model, images: torch.Tensor, labels: torch.Tensor) -> float:
    with torch.no_grad():
        return torch.nn.functional.cross_entropy(model.eval()(images).logits, labels).item()


@pytest.mark.parametrize("kind", [SmallNet, SmallCapsules])
@pytest.mark.parametrize("text", ["pgd:0.1:5", "trades:0.1:5:6"])
def test_perturbed_images_are_near_and_worse(kind: type[Model], text: str) -> None:
    torch.manual_seed(0)
    model, images = kind(), torch.rand(16, 1, 6, 6)
    labels = model.eval()(images).scores.argmax(1)
    model.train()
    moved = parse_adversarial(text).perturb(model, images, labels)
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    assert (moved - images).abs().max() <= 0.1 + 1e-6
    assert 0 <= moved.min() <= moved.max() <= 1
    assert loss_of(model, moved, labels) > loss_of(model, images, labels) + 0.05


def test_the_objective_is_the_loss_of_perturbed_images() -> None:
    torch.manual_seed(0)
    model = SmallNet()
    model.layers[3].p = 0.0  # no dropout, so that the passes agree
    images, labels = torch.rand(8, 1, 6, 6), torch.arange(8) % 5
    common = {"model": "lenet", "data": "mnist", "loss": "cross-entropy"}
    plain, pgd, trades = (
        Objective(model, resolve(**common, adversarial=text)) for text in (None, "pgd:0.1:3", "trades:0.1:3:6")
    )
    clean, _ = plain(images, labels, None, 0.0)
    torch.manual_seed(1)
    hard, output = pgd(images, labels, None, 0.0)
    torch.manual_seed(1)
    moved = parse_adversarial("pgd:0.1:3").perturb(model, images, labels)
    expected = torch.nn.functional.cross_entropy(model(moved).logits, one_hot(labels, 5))
    torch.testing.assert_close(hard, expected)
    assert hard > clean
    torch.testing.assert_close(output.logits, model(moved).logits)
    torch.manual_seed(1)
    mixed, _ = trades(images, labels, None, 0.0)
    settings = parse_adversarial("trades:0.1:3:6")
    torch.manual_seed(1)
    logits = model(settings.perturb(model, images, labels)).logits
    probabilities, moved_probabilities = model(images).logits.softmax(1), logits.softmax(1)
    divergence = (probabilities * (probabilities / moved_probabilities).log()).sum(1).mean()
    torch.testing.assert_close(mixed, clean + 6 * divergence, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pdg:0.1:5", "did you mean 'pgd'"),
        ("pgd:0.1", "should be written as pgd:EPSILON:STEPS"),
        ("pgd:2:5", "epsilon in"),
        ("trades:0.1:5", "should be written as trades:EPSILON:STEPS:BETA"),
        ("pgd:0.1:100000", "1 to 1000 steps"),
    ],
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(TorchcapsError, match=message):
        resolve(model="lenet", data="mnist", adversarial=text)


def test_two_labels_in_an_image_are_refused() -> None:
    with pytest.raises(TorchcapsError, match="adversarial training needs one label per image"):
        resolve(model="capsnet", data="multimnist", adversarial="pgd:0.1:5")
