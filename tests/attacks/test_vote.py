"""The vote attack."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchcaps.attacks import create_attack
from torchcaps.attacks.vote import voted_output
from torchcaps.errors import TorchcapsError
from torchcaps.layers.capsule_layer import record_layers
from torchcaps.models import Model, create_model

TINY: dict[str, Any] = {"size": "laptop", "filters": 4, "types": 2, "kernel": 5, "decoder": "none", "image_size": 12}


def tiny(**settings: Any) -> Model:
    torch.manual_seed(0)
    return create_model("capsnet", **TINY | settings).eval()


def test_logits_are_those_of_the_mean_votes() -> None:
    model, images = tiny(), torch.rand(3, 1, 12, 12)
    with record_layers(votes=True) as calls:
        output = model(images)
    votes = calls[-1].votes
    assert votes is not None
    found = voted_output(model, images)
    assert torch.equal(found.scores, output.scores)
    for image in range(3):
        for j in range(10):
            mean = sum(votes[image, 0, i, j] for i in range(votes.shape[2])) / votes.shape[2]
            square = float(mean.detach().square().sum())
            assert found.logits[image, j].exp().item() == pytest.approx(square / (1 + square), rel=1e-4)


def test_the_gradient_does_not_pass_through_the_routing() -> None:
    images = torch.rand(2, 1, 12, 12, requires_grad=True)
    gradients = []
    for iterations in (1, 3):
        model = tiny(routing_options={"iterations": iterations})
        gradients.append(torch.autograd.grad(voted_output(model, images).logits.sum(), images)[0])
    assert gradients[0].abs().sum() > 0
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", ["vote-fgsm", "vote-pgd"])
def test_perturbations_stay_within_epsilon_and_change_answers(name: str) -> None:
    model, images = tiny(), torch.rand(12, 1, 12, 12)
    with torch.no_grad():
        labels = model(images).scores.argmax(1)
    found = create_attack(name, **({"steps": 3} if name == "vote-pgd" else {}))(model, images, labels, epsilon=0.2)
    assert (found.images - images).abs().max() <= 0.2 + 1e-6
    assert 0 <= found.images.min() <= found.images.max() <= 1
    assert found.success.any()
    assert found.queries > 0


def test_networks_without_votes_for_lengths_are_refused() -> None:
    images, labels = torch.rand(2, 1, 28, 28), torch.zeros(2, dtype=torch.long)
    with pytest.raises(TorchcapsError, match="needs a network with capsule layers, and LeNet has none"):
        create_attack("vote-fgsm")(create_model("lenet"), images, labels, epsilon=0.1)
    with pytest.raises(TorchcapsError, match="gives activations: use another attack"):
        create_attack("vote-pgd")(tiny(routing="em"), images[:, :, :12, :12], labels, epsilon=0.1)
