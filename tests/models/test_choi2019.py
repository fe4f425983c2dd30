from __future__ import annotations

import torch

from torchcaps.layers import Capsules
from torchcaps.models import create_model


def test_scores_are_lengths_over_the_root_of_the_size() -> None:
    output = create_model("ar-capsnet", size="laptop").eval()(torch.rand(3, 1, 28, 28))
    torch.testing.assert_close(output.scores, output.pose.norm(dim=2) / 16**0.5)


def test_consecutive_layers_of_one_shape_have_a_residual_connection() -> None:
    model = create_model("ar-capsnet-cifar10", size="laptop", layers=3, image_size=16, channels=3).eval()
    images = torch.rand(2, 3, 16, 16)
    expected = model.primary(model.features(images))
    for index, layer in enumerate(model.capsules):
        routed = layer(expected)
        # The first layer halves the grid and the last one makes classes: nothing to add there.
        expected = Capsules(routed.pose + expected.pose) if index in (1, 2) else routed
    torch.testing.assert_close(model(images).pose, expected.pose.flatten(1, 3))


def test_dropout_acts_in_training_only() -> None:
    model, images = create_model("ar-capsnet", size="laptop"), torch.rand(4, 1, 28, 28)
    model.train()
    assert not torch.equal(model(images).scores, model(images).scores)
    model.eval()
    assert torch.equal(model(images).scores, model(images).scores)
    without = create_model("ar-capsnet", size="laptop", dropout=0.0).train()
    assert torch.equal(without(images).scores, without(images).scores)
