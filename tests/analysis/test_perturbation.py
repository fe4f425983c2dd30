from __future__ import annotations

import pytest
import torch

from torchcaps.analysis import perturb_dimensions
from torchcaps.errors import TorchcapsError
from torchcaps.models import create_model


def test_each_dimension_is_moved_alone() -> None:
    model = create_model("capsnet", size="laptop", class_size=4).eval()
    image = torch.rand(1, 28, 28)
    drawn = perturb_dimensions(model, image, reach=0.2, steps=5)
    assert drawn.shape == (4, 5, 1, 28, 28)
    output = model(image.unsqueeze(0))
    winner = int(output.scores.argmax())
    for dimension in range(4):
        for step, move in enumerate([-0.2, -0.1, 0.0, 0.1, 0.2]):
            pose = output.pose.clone()
            pose[0, winner, dimension] += move
            expected = model.reconstruct(output._replace(pose=pose), torch.tensor([winner]))[0]
            torch.testing.assert_close(drawn[dimension, step], expected, rtol=1e-4, atol=1e-6)


def test_a_model_without_capsules_is_refused() -> None:
    with pytest.raises(TorchcapsError, match="has no capsules"):
        perturb_dimensions(create_model("convnet-avg", size="laptop"), torch.rand(1, 28, 28))
