from __future__ import annotations

import torch

from torchcaps.models import create_model


def test_the_mean_of_the_training_images_is_learned_saved_and_taken_away() -> None:
    settings = {"size": "laptop", "image_size": 32, "channels": 3}
    model, other = (create_model("g-capsnet-fc-cifar10", **settings) for _ in range(2))
    images = torch.rand(50, 3, 32, 32)
    model.prepare(images)
    torch.testing.assert_close(model.preprocess(images).mean(0), torch.zeros(3, 32, 32), atol=1e-6, rtol=0)
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other(images[:2]).scores, model(images[:2]).scores)


def test_models_without_such_a_layer_are_left_alone() -> None:
    model = create_model("capsnet", size="laptop")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.prepare(torch.rand(5, 1, 28, 28))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
