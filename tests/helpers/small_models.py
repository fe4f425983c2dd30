"""Models that are fast to attack in tests."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.attacks import Attack, attacks, create_attack
from torchcaps.data import Batch, load_dataset
from torchcaps.functional import log_odds, safe_norm, squash
from torchcaps.models import Model, Output

# Settings that make attacks fast.
QUICK: dict[str, dict[str, Any]] = {
    "bim": {"steps": 4, "relative_step": 0.4},
    "pgd": {"steps": 4, "relative_step": 0.4, "restarts": 2},
    "universal": {"iterations": 4, "batch_size": 4, "eval_every": 2},
    "universal-pgd": {"iterations": 4, "batch_size": 4, "eval_every": 2},
    "autoattack": {"steps": 4, "queries": 10},
    "square": {"queries": 20},
}


class SmallNet(Model):
    """One hidden layer, smooth everywhere, and dropout that must be off outside training."""

    def __init__(
        self, image_shape: tuple[int, int, int] = (1, 6, 6), classes: int = 5, *, preprocess: nn.Module | None = None
    ) -> None:
        super().__init__(image_shape, classes, preprocess=preprocess)
        pixels = image_shape[0] * image_shape[1] * image_shape[2]
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(pixels, 24), nn.Tanh(), nn.Dropout(0.3), nn.Linear(24, classes)
        )

    def classify(self, images: Tensor) -> Output:
        logits = 3 * self.layers(images)
        return Output(logits.softmax(1), logits)


class SmallCapsules(SmallNet):
    """Squashes groups of four outputs; their length is the score."""

    def __init__(self, image_shape: tuple[int, int, int] = (1, 6, 6), classes: int = 5) -> None:
        super().__init__(image_shape, 4 * classes)
        self.classes = classes

    def classify(self, images: Tensor) -> Output:
        pose = squash(self.layers(images).view(len(images), -1, 4))
        scores = safe_norm(pose)
        return Output(scores, log_odds(scores), pose)


def quick(name: str, source: Model | None = None, **settings: Any) -> Attack:
    """An attack with quick settings."""
    made = {"source": source} if attacks.get(name).needs_source else {}
    return create_attack(name, **{**QUICK.get(name, {}), **made, **settings})


def answered(model: Model, count: int) -> tuple[Tensor, Tensor]:
    """Random images with the labels that the model predicts, except for the first."""
    images = torch.rand(count, *model.image_shape).to(next(model.parameters()))
    with torch.no_grad():
        labels = model.eval()(images).scores.argmax(1)
    labels[0] = (labels[0] + 1) % model.classes
    return images, labels


@cache
def glyphs(split: str, count: int) -> Batch:
    """The first images of a split of glyphs."""
    return load_dataset("glyphs", split).batch(torch.arange(count))


@cache
def trained(seed: int = 0, capsules: bool = False) -> Model:
    """A small model trained on glyphs for a second or two."""
    torch.manual_seed(seed)
    shape = (1, 28, 28)
    model = SmallCapsules(shape, 10) if capsules else SmallNet(shape, 10)
    batch = glyphs("train", 3000)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    model.train()
    for _ in range(8):
        for rows in torch.randperm(3000).split(100):
            optimizer.zero_grad()
            F.cross_entropy(model(batch.images[rows]).logits, batch.labels[rows]).backward()
            optimizer.step()
    optimizer.zero_grad()
    return model.eval()
