"""A laptop-size CapsNet takes a few training steps on every dataset that needs no download."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from tests.data.datasets.test_digits import needs_mnist, some_digits
from torchcaps.data import Augmentation, DatasetRecord, ImageSet, datasets, load_dataset
from torchcaps.data.datasets.affnist import change_digits
from torchcaps.data.datasets.multimnist import OverlaidDigits
from torchcaps.data.turntable import open_turntable
from torchcaps.models import create_model
from torchcaps.train.objective import crop_to_model


def learn(record: DatasetRecord, images: ImageSet, steps: int = 8) -> None:
    channels, size, _ = record.input_shape
    model = create_model("capsnet", size="laptop", image_size=size, channels=channels, classes=len(record.class_names))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    augment, generator = Augmentation(record.augmentation), torch.Generator().manual_seed(0)
    losses = []
    first = images.batch(torch.arange(16))
    for _ in range(steps):
        scores = model(augment(first.images, generator)).scores
        wanted = torch.zeros_like(scores).scatter(1, first.labels.reshape(len(scores), -1), 1.0)
        loss = F.mse_loss(scores, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(torch.isfinite(torch.tensor(losses)))
    assert min(losses[1:]) < losses[0]
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    assert model(crop_to_model(model, first.images)).scores.shape == (16, len(record.class_names))


def test_glyphs() -> None:
    learn(datasets.get("glyphs"), load_dataset("glyphs"))


def test_changed_digits() -> None:
    learn(datasets.get("affnist"), change_digits(some_digits(), 0))


def test_overlaid_digits() -> None:
    learn(datasets.get("multimnist"), OverlaidDigits(some_digits(), 0, 10))


def test_toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    learn(datasets.get("turntable"), open_turntable("train", stride=9))


def test_own_pictures(tmp_path: Path) -> None:
    for name, color in (("blue", (9, 9, 250)), ("red", (250, 9, 9))):
        (tmp_path / name).mkdir()
        for number in range(20):
            Image.new("RGB", (30, 30 + number), color).save(tmp_path / name / f"{number}.png")
    record = datasets.get(f"images:{tmp_path},size=28")
    learn(record, record.open("train"))


@needs_mnist
@pytest.mark.parametrize("name", ["mnist", "mnist-40"])
def test_real_digits(name: str) -> None:
    learn(datasets.get(name), load_dataset(name, "test"))
