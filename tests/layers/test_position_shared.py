"""The class layer: matrices shared over positions, and coordinate addition."""

from __future__ import annotations

import pytest
import torch

from torchcaps.errors import TorchcapsError
from torchcaps.layers import Capsules, ConvTransform, CoordinateAddition, DenseTransform, PositionSharedTransform


def test_one_matrix_per_type_and_class_at_every_position() -> None:
    layer = PositionSharedTransform((2, 3), 4, 5)
    pose = torch.randn(2, 2, 3, 4, 16)
    votes = layer(Capsules(pose))
    assert votes.shape == (2, 1, 24, 5, 16)
    assert layer.weight.numel() == 4 * 5 * 16
    for y, x, n, j in [(0, 0, 0, 0), (1, 2, 3, 4), (0, 2, 1, 3), (1, 0, 2, 2)]:
        vote = pose[1, y, x, n].view(4, 4) @ layer.weight[n, :, 4 * j : 4 * j + 4]
        torch.testing.assert_close(votes[1, 0, (y * 3 + x) * 4 + n, j].view(4, 4), vote)


def test_activations_stand_in_the_order_of_the_votes() -> None:
    layer = CoordinateAddition(PositionSharedTransform((2, 3), 4, 5))
    activation = torch.rand(2, 2, 3, 4)
    assert layer.gather(activation)[1, 0, (1 * 3 + 2) * 4 + 3] == activation[1, 1, 2, 3]


def test_row_and_column_go_into_the_right_hand_column() -> None:
    plain = PositionSharedTransform((2, 4), 3, 5)
    pose = torch.randn(1, 2, 4, 3, 16)
    added = CoordinateAddition(plain)(Capsules(pose)) - plain(Capsules(pose))
    added = added.view(2, 4, 3, 5, 4, 4)
    for y in range(2):
        for x in range(4):
            expected = torch.zeros(4, 4)
            expected[0, 3], expected[1, 3] = (y + 0.5) / 2, (x + 0.5) / 4
            torch.testing.assert_close(added[y, x], expected.expand(3, 5, 4, 4), rtol=0, atol=1e-6)


def test_a_vector_pose_takes_them_at_its_end() -> None:
    plain = PositionSharedTransform((2, 2), 1, 1, child_pose=(1, 16), parent_pose=(1, 16))
    votes = CoordinateAddition(plain)(Capsules(torch.zeros(1, 2, 2, 1, 16)))
    assert votes[0, 0, 1, 0].tolist() == [0.0] * 14 + [0.25, 0.75]


def test_coordinates_are_refused_where_places_have_matrices_of_their_own() -> None:
    with pytest.raises(TorchcapsError, match="coordinate addition needs a transform that is shared over positions"):
        CoordinateAddition(DenseTransform(8, 2, 16, 16))
    with pytest.raises(TorchcapsError, match="ConvTransform has separate weights for each position"):
        CoordinateAddition(ConvTransform((4, 4), 2, 3, kernel=3))


def test_what_is_computed_is_not_stored() -> None:
    assert list(CoordinateAddition(PositionSharedTransform((2, 2), 1, 1)).state_dict()) == ["transform.weight"]
