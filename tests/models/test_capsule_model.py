from __future__ import annotations

import torch

from torchcaps.functional import safe_norm
from torchcaps.models import create_model


def test_em_on_capsnet_takes_lengths_as_activations_and_gives_activations_as_scores() -> None:
    model = create_model("capsnet", size="laptop", routing="em")
    images = torch.rand(2, 1, 28, 28)
    primary = model.primary(model.features(images))
    torch.testing.assert_close(primary.activation, safe_norm(primary.pose))
    capsules, _ = model.capsules(primary)
    torch.testing.assert_close(model(images).scores, capsules.activation.flatten(1))


def test_other_routings_are_given_no_activations() -> None:
    model = create_model("capsnet", size="laptop", routing="trainable")
    assert model.primary(model.features(torch.rand(2, 1, 28, 28))).activation is None


def test_three_layers_climb_together() -> None:
    """Discriminative routing in more than two capsule layers, from the votes of the first."""
    model = create_model("g-capsnet-multi", size="laptop", routing="discriminative-l2", image_size=28)
    routings = [layer.routing for layer in model.capsules]
    before = [routing.couplings.clone() for routing in routings]
    output = model(torch.rand(4, 1, 28, 28))
    model.after_step(output, torch.tensor([1, 2, 3, 4]))
    for routing, start in zip(routings, before, strict=True):
        assert routing.couplings.isfinite().all()
        assert not torch.equal(routing.couplings, start)
    assert all(parameter.grad is None for parameter in model.parameters())
