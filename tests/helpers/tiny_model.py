"""A tiny registered model with dropout, fast to train in tests."""

from __future__ import annotations

from torch import Tensor, nn

from torchcaps.models import Model, ModelRecord, Output, Recipe, models
from torchcaps.models.base import conv_output_size


class Tiny(Model):
    def __init__(self, image_shape: tuple[int, int, int], classes: int) -> None:
        super().__init__(image_shape, classes)
        inputs = image_shape[0] * conv_output_size(image_shape[1], (2, 2)) * conv_output_size(image_shape[2], (2, 2))
        self.layers = nn.Sequential(
            nn.AvgPool2d(2), nn.Flatten(), nn.Linear(inputs, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, classes)
        )

    def classify(self, images: Tensor) -> Output:
        logits = self.layers(images)
        return Output(logits.softmax(1), logits)


if "tiny" not in models:
    models.add(ModelRecord("tiny", "for tests", "none", Tiny, Recipe(loss="cross-entropy"), capsules=False))
