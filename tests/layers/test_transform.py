from __future__ import annotations

import torch

from torchcaps.layers import Capsules, DenseTransform, SharedTransform


def test_every_child_votes_through_the_same_matrix() -> None:
    transform, pose = SharedTransform(12, 5, 4, 6), torch.randn(3, 2, 2, 3, 4)
    votes = transform(Capsules(pose))
    assert votes.shape == (3, 1, 12, 5, 6)
    for image, row, column, kind, parent in [(0, 0, 0, 0, 0), (2, 1, 0, 2, 4)]:
        matrix = transform.weight[:, 6 * parent : 6 * parent + 6]  # D_child x D
        expected = pose[image, row, column, kind] @ matrix
        torch.testing.assert_close(votes[image, 0, (row * 2 + column) * 3 + kind, parent], expected)


def test_is_a_dense_transform_whose_matrices_are_equal() -> None:
    shared, dense = SharedTransform(12, 5, 4, 6), DenseTransform(12, 5, 4, 6)
    dense.weight.data.copy_(shared.weight.expand(12, -1, -1))
    capsules = Capsules(torch.randn(3, 2, 2, 3, 4))
    torch.testing.assert_close(shared(capsules), dense(capsules))
