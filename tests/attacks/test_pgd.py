"""FGSM, BIM and PGD against a slow reference and against foolbox, image by image."""

from __future__ import annotations

from typing import Any

import eagerpy
import foolbox
import pytest
import torch
from torch import Tensor, nn

from tests.helpers.small_models import SmallCapsules, SmallNet, answered
from tests.reference import attacks as reference
from torchcaps.attacks import Attack, create_attack
from torchcaps.attacks.logits import LogitsView, logits_views
from torchcaps.models import Model, create_model

NORMS = ("linf", "l2")
EPSILON = {"linf": 0.05, "l2": 0.3}
STEPS, SHARE = 5, 0.3
each_norm = pytest.mark.parametrize("norm", NORMS)
each_net = pytest.mark.parametrize(("net", "view"), [(SmallNet, "logits"), (SmallCapsules, "atanh")])


def build(name: str, norm: str) -> Attack:
    settings = {} if "fgsm" in name else {"steps": STEPS, "relative_step": SHARE}
    return create_attack(name, norm=norm, **settings)


def start_of(attack: Attack, images: Tensor, epsilon: float, seed: int = 0) -> Tensor:
    """The random start of PGD: the first random numbers after seeding."""
    torch.manual_seed(seed)
    return attack.random_start(images, epsilon)  # type: ignore[attr-defined]


@each_norm
@each_net
@pytest.mark.parametrize("name", ["fgsm", "bim", "pgd"])
def test_steps_are_the_reference_s(name: str, norm: str, net: type[Model], view: str) -> None:
    model = net((1, 3, 3), 3).double().eval()
    images, labels = answered(model, 6)
    images, labels = images[1:], labels[1:]
    attack, epsilon = build(name, norm), EPSILON[norm]
    found = attack(model, images, labels, epsilon=epsilon, logits=view)
    starts = start_of(attack, images, epsilon) if name == "pgd" else images

    def logits(image: Tensor) -> Tensor:
        with torch.no_grad():
            return logits_views.get(view).read(model(image.unsqueeze(0)))[0]

    step, steps = (epsilon, 1) if name == "fgsm" else (SHARE * epsilon, STEPS)
    for row, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        expected = reference.attack(
            logits, image, label, epsilon=epsilon, norm=norm, step=step, steps=steps, start=starts[row]
        )
        torch.testing.assert_close(found.images[row], expected, rtol=0, atol=1e-5)


@each_norm
def test_targeted_steps_are_the_reference_s(norm: str) -> None:
    model = SmallNet((1, 3, 3), 3).double().eval()
    images, labels = answered(model, 8)
    epsilon = EPSILON[norm]
    found = create_attack("targeted-fgsm", norm=norm)(model, images, labels, epsilon=epsilon, logits="logits")

    def logits(image: Tensor) -> Tensor:
        with torch.no_grad():
            return model(image.unsqueeze(0)).logits[0]

    for row, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        for target in range(3):
            moved = reference.attack(
                logits, image, label, epsilon=epsilon, norm=norm, step=epsilon, steps=1, target=target
            )
            tried = target not in (label, int(logits(image).argmax()))  # an image on the target already is no success
            hit = tried and int(logits(moved).argmax()) == target
            assert bool(found.hits[row, target]) == hit
    assert 0 < found.hits.sum() < 2 * len(images)


class LogitsOf(nn.Module):
    def __init__(self, model: Model, view: LogitsView) -> None:
        super().__init__()
        self.model, self.view = model, view

    def forward(self, images: Tensor) -> Tensor:
        return self.view.read(self.model(images))


def foolbox_attack(name: str, norm: str, steps: int, start: Tensor) -> Any:
    kind = {"linf": "Linf", "l2": "L2"}[norm]
    if name == "fgsm":
        return getattr(foolbox.attacks, f"{kind}FastGradientAttack")()
    if name == "bim":
        return getattr(foolbox.attacks, f"{kind}BasicIterativeAttack")(rel_stepsize=SHARE, steps=steps)
    made = getattr(foolbox.attacks, f"{kind}ProjectedGradientDescentAttack")(rel_stepsize=SHARE, steps=steps)
    made.get_random_start = lambda inputs, epsilon: eagerpy.astensor(start)  # its random numbers are not ours
    return made


def by_foolbox(name: str, norm: str, model: Model, view: str, images: Tensor, labels: Tensor, start: Tensor) -> Tensor:
    """Foolbox takes every step; ours stops where the answer is wrong: so foolbox with the steps that were needed."""
    wrapped = foolbox.PyTorchModel(LogitsOf(model, logits_views.get(view)).eval(), bounds=(0, 1), device="cpu")
    criterion = foolbox.criteria.Misclassification(labels)
    expected, held = start.clone(), torch.ones(len(images), dtype=torch.bool)
    if name == "pgd":
        held = model(start).scores.argmax(1) == labels
    for steps in range(1, (1 if name == "fgsm" else STEPS) + 1):
        attack = foolbox_attack(name, norm, steps, start)
        moved = attack.run(wrapped, images, criterion, epsilon=EPSILON[norm])
        expected[held] = moved[held]
        held &= model(moved).scores.argmax(1) == labels
    return expected.detach()


@each_norm
@each_net
@pytest.mark.parametrize("name", ["fgsm", "bim", "pgd"])
def test_images_are_foolbox_s(name: str, norm: str, net: type[Model], view: str) -> None:
    model = net((2, 6, 6), 5).eval()
    images, labels = answered(model, 40)
    images, labels = images[1:], labels[1:]
    attack = build(name, norm)
    found = attack(model, images, labels, epsilon=EPSILON[norm], logits=view)
    start = start_of(attack, images, EPSILON[norm]) if name == "pgd" else images
    expected = by_foolbox(name, norm, model, view, images, labels, start)
    torch.testing.assert_close(found.images, expected, rtol=0, atol=1e-5)
    assert 0 < found.success.sum() < len(images)


def test_a_real_capsule_network_agrees_with_foolbox() -> None:
    model = create_model("capsnet", size="laptop", decoder="none").eval()
    images, labels = answered(model, 4)
    images, labels = images[1:], labels[1:]
    found = build("fgsm", "linf")(model, images, labels, epsilon=EPSILON["linf"], logits="log-odds")
    expected = by_foolbox("fgsm", "linf", model, "log-odds", images, labels, images)
    torch.testing.assert_close(found.images, expected, rtol=0, atol=1e-5)
