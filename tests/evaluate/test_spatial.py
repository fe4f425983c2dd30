"""The worst rotation and shift, and corruptions, on models that are easy to reason about."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchcaps.data import TensorImages
from torchcaps.data.corruptions import corruptions
from torchcaps.evaluate.corruption import measure_corruptions
from torchcaps.evaluate.spatial import measure_spatial
from torchcaps.models import Model, Output


class LeftOrRight(Model):
    """Class 0 if the left half of the image is brighter."""

    def __init__(self) -> None:
        super().__init__((1, 20, 20), 2)
        self.scale = nn.Parameter(torch.ones(()))

    def classify(self, images: Tensor) -> Output:
        left, right = images[..., :10].sum((1, 2, 3)), images[..., 10:].sum((1, 2, 3))
        logits = self.scale * torch.stack([left - right, right - left], 1)
        return Output(logits.softmax(1), logits)


def dots(column: int) -> TensorImages:
    """Images with one dot, 9 rows from the top, in a column; its label is the half it lies in."""
    images = torch.zeros(4, 1, 20, 20, dtype=torch.uint8)
    images[:, :, 9, column] = 255
    return TensorImages(images, torch.full((4,), int(column >= 10)), ("left", "right"))


def test_an_image_is_robust_if_no_shift_and_rotation_changes_the_answer() -> None:
    far, near = measure_spatial(LeftOrRight(), dots(2)), measure_spatial(LeftOrRight(), dots(8))
    assert far["clean_accuracy"] == near["clean_accuracy"] == 1
    assert far["accuracy"] == 1  # shifts of 2 pixels never move it across the middle
    assert near["accuracy"] == 0


def test_the_grid_without_rotations_moves_by_whole_pixels_only() -> None:
    found = measure_spatial(LeftOrRight(), dots(7), rotations=1, shifts=5)
    assert "worst of 25 rotations" in found["about"]
    assert found["accuracy"] == 1
    assert measure_spatial(LeftOrRight(), dots(8), rotations=1, shifts=5)["accuracy"] == 0


def test_every_corruption_is_measured_at_every_severity() -> None:
    found = measure_corruptions(LeftOrRight(), dots(2))
    assert list(found["by_corruption"]) == corruptions.names()
    assert all(len(values) == 5 for values in found["by_corruption"].values())
    assert found["clean_accuracy"] == 1
    assert 0 < found["accuracy"] <= 1
