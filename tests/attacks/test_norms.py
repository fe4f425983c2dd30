from __future__ import annotations

import pytest
import torch

from tests.reference import attacks as reference
from torchcaps.attacks.norms import NORMS, get_norm
from torchcaps.errors import TorchcapsError

each_norm = pytest.mark.parametrize("norm", list(NORMS))


@each_norm
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 100.0])
def test_projection_is_the_reference_s(norm: str, epsilon: float) -> None:
    perturbations = torch.randn(6, 2, 3, 4, dtype=torch.float64)
    perturbations[0] = 0
    projected = NORMS[norm].project(perturbations, epsilon)
    for ours, perturbation in zip(projected, perturbations, strict=True):
        torch.testing.assert_close(ours, reference.project(perturbation, epsilon, norm))


@each_norm
def test_the_steepest_step_has_size_one_and_gains_most(norm: str) -> None:
    # At 1e-30 squares are zero in float32.
    for scale in (1.0, 1e-30):
        gradients = scale * torch.randn(5, 1, 4, 4)
        step = NORMS[norm].steepest(gradients)
        torch.testing.assert_close(NORMS[norm].size(step), torch.ones(5))
        others = NORMS[norm].sample(gradients.repeat(50, 1, 1, 1)).view(50, *gradients.shape)
        assert ((step * gradients).sum((1, 2, 3)) >= (others * gradients).sum((2, 3, 4))).all()
    assert not NORMS[norm].steepest(torch.zeros(2, 1, 4, 4)).any()


@each_norm
def test_draws_fill_the_unit_ball_evenly(norm: str) -> None:
    sizes = NORMS[norm].size(NORMS[norm].sample(torch.zeros(4000, 1, 1, 3)))
    assert sizes.max() <= 1
    for radius in (0.5, 0.8):  # of three dimensions: the share within r is r cubed, in both norms
        assert (sizes < radius).double().mean().item() == pytest.approx(radius**3, abs=0.03)


@each_norm
def test_clipping_leaves_a_pixel_that_is_no_number_as_it_was(norm: str) -> None:
    images, moved = torch.rand(2, 1, 3, 3), torch.rand(2, 1, 3, 3)
    moved[0, 0, 0, 0], moved[1, 0, 2, 2] = torch.nan, torch.inf
    clipped = NORMS[norm].clip(moved, images, 0.1)
    assert clipped.isfinite().all()
    assert clipped[0, 0, 0, 0] == images[0, 0, 0, 0]
    assert clipped[1, 0, 2, 2] == images[1, 0, 2, 2]


def test_an_unknown_norm_is_refused() -> None:
    with pytest.raises(TorchcapsError, match="norm 'linff' is unknown: did you mean 'linf'"):
        get_norm("linff")
