"""Properties of every attack in the registry."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.helpers.small_models import SmallCapsules, SmallNet, answered, glyphs, quick, trained
from torchcaps.attacks import Attack, AttackRecord, attacks, create_attack
from torchcaps.attacks.model_wrapper import ModelWrapper
from torchcaps.attacks.norms import NORMS
from torchcaps.errors import TorchcapsError
from torchcaps.layers import MeanImage, Standardize

ANY_NETWORK = [record for record in attacks if not record.needs_capsules]  # the others: tests/attacks/test_vote.py
each_attack = pytest.mark.parametrize("record", ANY_NETWORK, ids=lambda record: record.name)
each_norm = pytest.mark.parametrize(
    ("record", "norm"),
    [(record, norm) for record in ANY_NETWORK for norm in record.norms],
    ids=lambda value: getattr(value, "name", value),
)
PREPROCESS = {"none": None, "standardize": Standardize(), "mean": MeanImage((2, 5, 5))}
PREPROCESS["mean"].fit(torch.linspace(0, 1, 50).view(1, 2, 5, 5))


@each_norm
@pytest.mark.parametrize("preprocess", PREPROCESS)
@settings(max_examples=6, deadline=None)
@given(epsilon=st.floats(0, 2), seed=st.integers(0, 1000), contrast=st.sampled_from([0.0, 0.01, 1.0]))
def test_no_attack_leaves_epsilon_or_the_pixels_range(
    record: AttackRecord, norm: str, preprocess: str, epsilon: float, seed: int, contrast: float
) -> None:
    epsilon = min(epsilon, 1.0) if norm == "linf" else epsilon  # more than the range of the pixels is refused
    torch.manual_seed(seed)
    model = SmallNet((2, 5, 5), 4, preprocess=PREPROCESS[preprocess])
    images, labels = answered(model, 4)
    images = contrast * images  # blank ones among them
    found = quick(record.name, SmallNet((2, 5, 5), 4), norm=norm)(model, images, labels, epsilon=epsilon, seed=seed)
    assert NORMS[norm].size(found.images - images).max() <= epsilon * (1 + 1e-5) + 1e-6
    assert found.images.min() >= 0
    assert found.images.max() <= 1


class Rogue(Attack):
    """An attack that ignores epsilon and the bounds, and counts no queries."""

    def perturb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        far = 100 * torch.randn_like(images)
        far[0] = torch.nan
        return far


@pytest.mark.parametrize("norm", list(NORMS))
def test_the_base_holds_whatever_a_subclass_does(norm: str) -> None:
    model = SmallNet()
    images, labels = answered(model, 20)
    found = Rogue(norm=norm)(model, images, labels, epsilon=0.2)
    assert NORMS[norm].size(found.images - images).max() <= 0.2 + 1e-6
    assert found.images.min() >= 0
    assert found.images.max() <= 1
    with torch.no_grad():
        assert torch.equal(found.predictions, model(found.images).scores.argmax(1))


@each_norm
def test_success_is_what_the_model_answers_for_the_clipped_images(record: AttackRecord, norm: str) -> None:
    model = SmallNet()
    images, labels = answered(model, 12)
    found = quick(record.name, SmallNet(), norm=norm)(model, images, labels, epsilon=0.3)
    with torch.no_grad():
        answers = model.eval()(found.images).scores.argmax(1)
    assert torch.equal(found.predictions, answers)
    assert torch.equal(found.success, answers != labels)
    assert found.accuracy == pytest.approx((answers == labels).double().mean().item())
    assert found.success[0], "a mistake made without any attack is one"
    if not record.targeted:
        assert torch.equal(found.images[0], images[0])
        assert sum(found.by_view.values()) == int(found.success[1:].sum())


@each_attack
def test_the_seed_decides_and_the_global_random_state_stays(record: AttackRecord) -> None:
    model, source = SmallNet(), SmallNet()
    images, labels = answered(model, 8)
    attack = quick(record.name, source)
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first = attack(model, images, labels, epsilon=0.2, seed=5)
    assert torch.equal(torch.rand(3), expected)
    second = attack(model, images, labels, epsilon=0.2, seed=5)
    assert torch.equal(first.images, second.images)
    assert (first.queries, first.by_view, first.history) == (second.queries, second.by_view, second.history)


@each_attack
def test_the_model_is_left_as_it_was(record: AttackRecord) -> None:
    model, source = SmallNet(), SmallNet()
    images, labels = answered(model, 5)
    kept = images.clone()
    for each in (model, source):
        each.train()
        each.layers[0].eval()  # a part may be in another mode
        each.layers[1].bias.requires_grad_(False)
    before = [copy.deepcopy(each.state_dict()) for each in (model, source)]
    quick(record.name, source)(model, images, labels, epsilon=0.2)
    assert torch.equal(images, kept)
    for each, state in zip((model, source), before, strict=True):
        assert [module.training for module in each.layers] == [False, True, True, True, True]
        assert [p.requires_grad for p in each.parameters()] == [True, False, True, True]
        assert all(parameter.grad is None for parameter in each.parameters())
        assert all(torch.equal(value, state[name]) for name, value in each.state_dict().items())


@each_attack
@pytest.mark.parametrize("capsules", [False, True])
def test_a_trained_model_is_hurt(record: AttackRecord, capsules: bool) -> None:
    model, batch = trained(capsules=capsules), glyphs("test", 60)
    longer = {"iterations": 40, "batch_size": 20, "eval_every": 20}
    settings = {"universal": longer, "universal-pgd": longer, "square": {"queries": 60}}
    attack = quick(record.name, trained(1), **settings.get(record.name, {}))
    with torch.no_grad():
        clean = (model(batch.images).scores.argmax(1) == batch.labels).double().mean().item()
    found = attack(model, batch.images, batch.labels, epsilon=0.3)
    assert clean > 0.8
    assert found.accuracy < clean - 0.15, (clean, found.accuracy)


@each_attack
def test_the_budget_is_kept(record: AttackRecord) -> None:
    model, source = SmallNet(), SmallNet()
    images, labels = answered(model, 6)
    passes = []
    hook = model.register_forward_hook(lambda *_: passes.append(1))
    attack = quick(record.name, source)
    found = attack(model, images, labels, epsilon=1e-6, budget=3)
    hook.remove()
    batch = getattr(attack, "batch_size", 6)
    assert found.queries <= 3 * batch
    assert NORMS["linf"].size(found.images - images).max() <= 2e-6


@each_attack
def test_records_are_true(record: AttackRecord) -> None:
    attack = quick(record.name, SmallNet())
    assert attack.norms == record.norms
    assert attack.targeted == record.targeted
    model = SmallNet()
    images, labels = answered(model, 6)
    seen = []
    model.register_full_backward_hook(lambda *_: seen.append(1))
    attack(model, images, labels, epsilon=0.1)
    assert bool(seen) == record.white_box, "who is not said to see gradients must not ask for them"


def test_what_cannot_be_attacked_is_refused_in_one_sentence() -> None:
    model, attack = SmallNet(), create_attack("fgsm")
    images, labels = torch.rand(3, 1, 6, 6), torch.tensor([0, 1, 2])
    for match, changed in {
        r"one label per image, got 2: .* multimnist": {"labels": labels.repeat(2, 1).t()},
        r"\(C, H, W\) = \(1, 6, 6\), got a batch of shape \(3, 1, 7, 6\)": {"images": torch.rand(3, 1, 7, 6)},
        "as many labels as images, got 3 images": {"labels": labels[:2]},
        r"pixels must lie in \[0, 1\], got -1 to": {"images": images * 2 - 1.0 - images.min() * 2},
        "pixels must lie": {"images": images * torch.nan},
        "labels run from 0 to 9, but the model has 5": {"labels": torch.tensor([0, 1, 9])},
        "epsilon must be finite": {"epsilon": -0.1},
        "epsilon must be": {"epsilon": torch.inf},
    }.items():
        arguments = {"images": images, "labels": labels, "epsilon": 0.1, **changed}
        with pytest.raises(TorchcapsError, match=match):
            attack(model, **arguments)
    with pytest.raises(TorchcapsError, match="attack 'fgms' is unknown: did you mean 'fgsm'"):
        create_attack("fgms")
    with pytest.raises(TorchcapsError, match="attack 'bim' does not take these settings"):
        create_attack("bim", restarts=3)
    with pytest.raises(TorchcapsError, match=r"Square supports norm linf, got 'l2'"):
        create_attack("square", norm="l2")
    with pytest.raises(TorchcapsError, match="at least 1 step"):
        create_attack("pgd", steps=0)


def test_the_strongest_view_is_at_least_as_strong_as_each() -> None:
    model = SmallCapsules()
    images, labels = answered(model, 60)
    attack = quick("bim")
    each = {name: attack(model, images, labels, epsilon=0.1, logits=name) for name in ("atanh", "log-odds", "scores")}
    strongest = attack(model, images, labels, epsilon=0.1)
    together = torch.stack([result.success for result in each.values()]).any(0)
    assert torch.equal(strongest.success, together)
    assert list(strongest.by_view) == list(each)
    assert strongest.logits == "strongest"
    held = int((~each["atanh"].success).sum())
    assert strongest.queries <= each["atanh"].queries + held * 2 * 4, "only what is right still is attacked again"
