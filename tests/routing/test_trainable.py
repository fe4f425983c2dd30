from __future__ import annotations

import torch

from tests.reference.routings import weighted_sum
from torchcaps.functional import squash
from torchcaps.routing.base import LayerShape
from torchcaps.routing.trainable import TrainableRouting


def test_agrees_with_the_reference_at_every_position() -> None:
    routing, votes = TrainableRouting(LayerShape(4, 7, 5, 6)), torch.randn(3, 4, 7, 5, 6)
    pose = routing(votes, nonlinearity=squash).pose
    for image in range(3):
        for position in range(4):
            expected = weighted_sum(votes[image, position].tolist(), routing.couplings[position].tolist())
            torch.testing.assert_close(pose[image, position], torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_couplings_are_the_parameters_for_every_image() -> None:
    routing = TrainableRouting(LayerShape(2, 7, 5, 6))
    (couplings,) = routing(torch.randn(3, 2, 7, 5, 6), nonlinearity=squash).couplings
    torch.testing.assert_close(couplings, routing.couplings.expand(3, 2, 7, 5))


def test_couplings_start_with_both_signs_within_xavier_s_bound() -> None:
    couplings = TrainableRouting(LayerShape(1, 1152, 10, 16)).couplings
    bound = (6 / 1162) ** 0.5
    assert 0.98 * bound < couplings.abs().max() <= bound
    assert abs(couplings.mean().item()) < bound / 50
