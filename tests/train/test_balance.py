"""Class imbalance: classes shown equally often, or weighed in the loss; and augmentation by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.helpers.small_models import SmallNet
from tests.helpers.small_runs import small_run
from torchcaps.data import Augmentation, Subset, TensorImages
from torchcaps.data.transforms import expand_preset
from torchcaps.errors import TorchcapsError
from torchcaps.losses import losses, one_hot
from torchcaps.train import resolve
from torchcaps.train.objective import Objective
from torchcaps.train.sampler import BalancedOrder, all_labels, class_weights

LABELS = torch.tensor([0] * 90 + [1] * 9 + [2])


def test_every_class_is_shown_equally_often() -> None:
    order = BalancedOrder(LABELS, seed=0)
    shown = torch.cat([order.batch(32, step) for step in range(4)])
    assert len(shown) == 100
    assert torch.bincount(LABELS[shown]).tolist() == pytest.approx([33, 33, 33], abs=2)
    assert len(set(shown[LABELS[shown] == 0].tolist())) > 30, "a large class is not repeated"
    again = BalancedOrder(LABELS, seed=0)
    assert torch.equal(again.batch(32, 2), order.batch(32, 2)), "a pure function of seed and step"
    assert not torch.equal(order.batch(32, 4), order.batch(32, 0)), "every epoch has its own order"


@pytest.mark.parametrize("name", ["margin", "cross-entropy", "spread", "bce"])
def test_the_weighted_loss_agrees_with_a_loop(name: str) -> None:
    weights = class_weights(LABELS, 3)
    assert float((weights[LABELS]).mean()) == pytest.approx(1)
    model = SmallNet((1, 6, 6), 3)
    images, labels = torch.rand(12, 1, 6, 6), torch.tensor([0, 1, 2, 0] * 3)
    config = resolve(model="lenet", data="glyphs", loss=name)
    total, output = Objective(model.eval(), config, weights)(images, labels, None, 0.5)
    single = [
        weights[labels[row]]
        * losses.get(name).compute(
            output.scores[row : row + 1], output.logits[row : row + 1], one_hot(labels[row : row + 1], 3), 0.5
        )
        for row in range(12)
    ]
    torch.testing.assert_close(total, torch.stack(single).mean())


def test_labels_of_any_set() -> None:
    whole = TensorImages(torch.zeros(100, 1, 2, 2), LABELS, ("a", "b", "c"))
    assert torch.equal(all_labels(Subset(whole, torch.tensor([99, 0]))), torch.tensor([2, 0]))
    with pytest.raises(TorchcapsError, match="balance needs one label per image, but multimnist has 2"):
        resolve(model="capsnet", data="multimnist", balance="sample")
    with pytest.raises(TorchcapsError, match="setting 'balance'"):
        resolve(model="capsnet", data="glyphs", balance="both")


@pytest.mark.parametrize("balance", ["weights", "sample"])
def test_a_run_trains_with_it(balance: str, tmp_path: Path) -> None:
    assert small_run(tmp_path / "run", balance=balance, steps=3).config().balance == balance


def test_augmentation_by_name() -> None:
    assert resolve(model="lenet", data="glyphs", augmentation="none").augmentation == ""
    assert resolve(model="lenet", data="glyphs", augmentation="light").augmentation == "shift=2,flip=0.5"
    strong = Augmentation(expand_preset("strong", 64))
    assert strong(torch.rand(2, 3, 64, 64), torch.Generator().manual_seed(0)).shape == (2, 3, 64, 64)
    with pytest.raises(TorchcapsError, match="augmentation 'stron' is unknown: did you mean 'strong'"):
        Augmentation("stron")
