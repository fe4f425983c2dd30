"""Tests of single attacks."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers.small_models import SmallCapsules, SmallNet, answered, glyphs, trained
from torchcaps.attacks import create_attack
from torchcaps.attacks.norms import NORMS
from torchcaps.attacks.square import Square, _squares
from torchcaps.attacks.universal import LATENT, PerturbationGenerator
from torchcaps.errors import TorchcapsError
from torchcaps.models import Output


class NoWayBack(SmallNet):
    def classify(self, images: Tensor) -> Output:
        with torch.no_grad():
            return super().classify(images)


def test_a_model_without_gradient_can_be_attacked_by_scores_alone() -> None:
    model = NoWayBack()
    images, labels = answered(model, 8)
    with pytest.raises(TorchcapsError, match=r"the model gives no gradient .* such as square"):
        create_attack("fgsm")(model, images, labels, epsilon=0.3)
    assert create_attack("square", queries=50)(model, images, labels, epsilon=0.3).success.sum() > 1


def test_more_restarts_of_pgd_break_no_fewer_images() -> None:
    model = trained()
    batch = glyphs("test", 60)
    one, five = (
        create_attack("pgd", steps=1, restarts=restarts)(
            model, batch.images, batch.labels, epsilon=0.1, logits="logits"
        )
        for restarts in (1, 5)
    )
    assert (one.success <= five.success).all()
    assert five.success.sum() > one.success.sum()


def test_targets_are_hit_only_where_they_are_wrong() -> None:
    model = trained()
    batch = glyphs("test", 40)
    found = create_attack("targeted-fgsm")(model, batch.images, batch.labels, epsilon=0.3)
    assert found.hits is not None
    assert not found.hits.gather(1, batch.labels.unsqueeze(1)).any()
    assert (found.success | ~found.hits.any(1)).all(), "an image taken for another class is a success"
    assert found.hits.sum() > 20


def test_transferred_images_are_made_without_a_look_at_the_model() -> None:
    source, model = trained(1), trained()
    batch = glyphs("test", 50)
    found = create_attack("transfer", source=source)(model, batch.images, batch.labels, epsilon=0.2)
    assert found.queries == 0
    assert list(found.by_view) == ["source"]
    # Also what the source itself gets wrong, or what fools it at once, is moved all the way.
    right = found.predictions != batch.labels
    moved = NORMS["linf"].size(found.images - batch.images)
    with torch.no_grad():
        attacked = model(batch.images).scores.argmax(1) == batch.labels
    assert (moved[attacked] > 0.19).all()
    assert right.any()


def test_many_steps_transfer_and_strange_sources_are_refused() -> None:
    model, batch = trained(), glyphs("test", 10)
    steps = create_attack("transfer", source=trained(1), base_attack=create_attack("bim", norm="l2", steps=3))
    found = steps(model, batch.images, batch.labels, epsilon=2.0)
    assert NORMS["l2"].size(found.images - batch.images).max() <= 2.0001
    with pytest.raises(TorchcapsError, match="cannot be transferred to a model for"):
        create_attack("transfer", source=SmallNet())(model, batch.images, batch.labels, epsilon=0.1)
    with pytest.raises(TorchcapsError, match="Universal cannot be transferred"):
        create_attack("transfer", source=model, base_attack=create_attack("universal"))


UNIVERSAL = [
    ("universal", {"loss": "logit-difference"}),
    ("universal", {"loss": "cross-entropy"}),
    ("universal-pgd", {"relative_step": 0.5}),
]


@pytest.mark.parametrize(("name", "settings"), UNIVERSAL)
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_a_universal_perturbation_is_the_same_for_all_images(name: str, settings: dict[str, Any], norm: str) -> None:
    model = trained()
    batch = glyphs("test", 50)
    attack = create_attack(name, norm=norm, iterations=4, batch_size=8, eval_every=2, **settings)
    epsilon = 1e-3  # too small for any answer to change, or for many pixels to reach their bounds
    found = attack(model, batch.images * 0.5 + 0.25, batch.labels, epsilon=epsilon)
    with torch.no_grad():
        right = model(batch.images * 0.5 + 0.25).scores.argmax(1) == batch.labels
    moved = (found.images - (batch.images * 0.5 + 0.25))[right]
    torch.testing.assert_close(moved, moved[:1].expand_as(moved), rtol=0, atol=1e-6)
    assert list(found.history) == [0, 2, 4]
    assert NORMS[norm].size(moved[:1]).item() == pytest.approx(epsilon, rel=1e-3), "all of epsilon is used"
    if (name, norm) == ("universal", "linf"):
        torch.testing.assert_close(moved.abs(), torch.full_like(moved, epsilon), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("name", "settings"), UNIVERSAL)
@pytest.mark.parametrize("capsules", [False, True])
def test_universal_perturbations_learn(name: str, settings: dict[str, Any], capsules: bool) -> None:
    model = trained(capsules=capsules)
    batch = glyphs("test", 100)
    attack = create_attack(name, iterations=60, batch_size=20, eval_every=20, **settings)
    found = attack(model, batch.images, batch.labels, epsilon=0.4)
    assert found.history[0] > 0.8
    assert found.history[60] < found.history[0] - 0.25
    assert found.accuracy == pytest.approx(found.history[60])


def test_universal_pgd_climbs_the_loss() -> None:
    """A large perturbation breaks a network in whatever direction it goes; a small one only uphill."""
    model, batch = trained(), glyphs("test", 100)
    attack = create_attack("universal-pgd", iterations=20, batch_size=50)
    found = attack(model, batch.images, batch.labels, epsilon=0.02, logits="logits")
    with torch.no_grad():
        clean, perturbed = (
            torch.nn.functional.cross_entropy(model(images).logits, batch.labels).item()
            for images in (batch.images, found.images)
        )
    assert perturbed > 1.1 * clean


def test_universal_attacks_count_the_passes_of_clean_images_and_refuse_other_losses() -> None:
    model, batch = trained(), glyphs("test", 20)
    by_loss = {
        loss: create_attack("universal", iterations=3, batch_size=4, loss=loss)(
            model, batch.images, batch.labels, epsilon=0.1, budget=5
        )
        for loss in ("logit-difference", "cross-entropy")
    }
    assert {loss: found.queries for loss, found in by_loss.items()} == {"logit-difference": 16, "cross-entropy": 12}
    with pytest.raises(TorchcapsError, match=r"loss of Universal 'logits' is unknown.*logit-difference"):
        create_attack("universal", loss="logits")
    with pytest.raises(TorchcapsError, match="UniversalPGD needs a relative_step above 0"):
        create_attack("universal-pgd", relative_step=0)
    with pytest.raises(TorchcapsError, match="UniversalPGD needs iterations and eval_every of at least 1"):
        create_attack("universal-pgd", iterations=0)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (2, 30, 27)])
def test_the_generator_s_layers_and_sizes(shape: tuple[int, int, int]) -> None:
    generator = PerturbationGenerator(shape)
    kinds = [type(layer).__name__ for layer in generator.layers]
    assert kinds.count("ConvTranspose2d") == kinds.count("BatchNorm2d") == 3
    drawn = generator(torch.rand(4, LATENT))
    assert drawn.shape == (4, *shape)
    assert drawn.abs().max() <= 1


def test_squares_are_squares_anywhere_in_the_image() -> None:
    mask = _squares(500, 6, 8, 3)
    assert mask.shape == (500, 1, 6, 8)
    assert (mask.sum((2, 3)) == 9).all()
    assert (mask.any(3).sum(2) == 3).all()
    assert mask.any(0).all(), "every pixel is in some square"


def test_square_keeps_only_what_helps() -> None:
    model, batch = trained(), glyphs("test", 40)
    own = torch.nn.functional.one_hot(batch.labels, 10).bool()
    leads = []
    for queries in (1, 60):  # the same stripes to start with
        attack = create_attack("square", queries=queries)
        found = attack(model, batch.images, batch.labels, epsilon=0.02, logits="logits")
        with torch.no_grad():
            logits = model(found.images).logits
        leads.append(logits[own] - logits.masked_fill(own, -torch.inf).amax(1))
    assert (leads[1] <= leads[0] + 1e-5).all()
    assert leads[1].mean() < leads[0].mean() - 0.1


def test_one_query_of_square_changes_one_square() -> None:
    model, batch = trained(), glyphs("test", 40)
    attack = Square(queries=1000)
    before, after = (
        attack(model, batch.images, batch.labels, epsilon=0.02, budget=budget).images for budget in (40, 41)
    )
    side = attack.side(40, 28, 28)
    changed = (before != after)[:, 0]  # (B, H, W)
    assert changed.any()
    for rows in (changed.any(2), changed.any(1)):
        for row in rows:
            places = row.nonzero()
            assert not len(places) or places.max() - places.min() < side == 9


def test_square_leaves_pixels_at_the_bounds_of_epsilon_and_asks_no_more_than_it_may() -> None:
    model = SmallCapsules()
    images, labels = answered(model, 10)
    images = images * 0.5 + 0.25
    found = create_attack("square", queries=7)(model, images, labels, epsilon=0.05)
    moved = (found.images - images).abs()
    torch.testing.assert_close(moved[moved > 0], torch.full_like(moved[moved > 0], 0.05), rtol=0, atol=1e-6)
    assert found.queries <= 7 * 10


def test_autoattack_names_the_extra_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyautoattack", None)
    with pytest.raises(TorchcapsError, match=r"pip install -e '\.\[attacks\]'"):
        create_attack("autoattack")


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_autoattack_works_with_few_classes_and_leaves_a_debugger_alone(classes: int) -> None:
    model = SmallNet(classes=classes)
    images, labels = answered(model, 4)
    seen: list[object] = []

    def trace(*arguments: object) -> None:
        seen.append(arguments)

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        found = create_attack("autoattack", steps=5, queries=5)(model, images, labels, epsilon=0.5)
        assert sys.gettrace() is trace
    finally:
        sys.settrace(before)
    assert found.success[1:].any()


def test_attacks_need_no_torchvision() -> None:
    code = (
        "import sys; sys.modules['torchvision'] = None; from torchcaps.attacks import create_attack; "
        "create_attack('autoattack'); assert 'foolbox' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
