from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.reference.competition import windows
from torchcaps.errors import TorchcapsError
from torchcaps.layers import Capsules, ConvTransform, PositionSharedTransform, Transform
from torchcaps.models import create_model

CASES = [
    ("right", (4, 4), (4, 4)),
    ("right", (2, 4), (2, 3)),  # rectangular poses and matrices
    ("right", (4, 2), (4, 2)),
    ("left", (4, 2), (3, 2)),
    ("right", (1, 8), (1, 16)),  # a vector with a full matrix
]


@pytest.mark.parametrize(("multiply", "child_pose", "parent_pose"), CASES)
def test_votes_are_products_of_pose_and_matrix(
    multiply: str, child_pose: tuple[int, int], parent_pose: tuple[int, int]
) -> None:
    layer = ConvTransform(
        (7, 6), 3, 5, child_pose=child_pose, parent_pose=parent_pose, kernel=3, stride=2, multiply=multiply
    )
    children = torch.randn(2, 7, 6, 3, child_pose[0] * child_pose[1])
    votes = layer(Capsules(children))
    assert votes.shape == (2, *(layer.shape.positions, layer.shape.children, layer.shape.parents, layer.shape.size))
    assert layer.grid == (3, 2)
    width = parent_pose[1] if multiply == "right" else parent_pose[0]
    for p, slots in enumerate(windows(7, 6, 3, 3, 2)):
        for i, (y, x, n) in enumerate(slots):
            for j in range(5):
                matrix = layer.weight[i, :, j * width : (j + 1) * width]
                pose = children[1, y, x, n].view(child_pose)
                vote = pose @ matrix if multiply == "right" else matrix.T @ pose
                torch.testing.assert_close(votes[1, p, i, j], vote.flatten())


def test_gather_brings_the_same_children_as_the_votes() -> None:
    layer = ConvTransform((7, 6), 3, 5, kernel=3, stride=2)
    values = torch.randn(2, 7, 6, 3)
    seen = layer.gather(values)
    expected = [[[image[child].item() for child in slots] for slots in windows(7, 6, 3, 3, 2)] for image in values]
    torch.testing.assert_close(seen, torch.tensor(expected))


def test_number_of_weights() -> None:
    def weights(layer: ConvTransform) -> int:
        return sum(each.numel() for each in layer.parameters())

    assert weights(ConvTransform((14, 14), 32, 32, kernel=3, stride=2)) == 9 * 32 * 32 * 16
    assert weights(ConvTransform((6, 6), 32, 10, child_pose=(2, 4), parent_pose=(2, 4), kernel=6)) == 36 * 32 * 10 * 16
    vector = ConvTransform((14, 14), 32, 32, child_pose=(1, 16), parent_pose=(1, 16), kernel=3)
    assert weights(vector) == 9 * 32 * 32 * 256


def test_gradient_in_double_precision() -> None:
    layer = ConvTransform((5, 4), 2, 3, child_pose=(2, 3), parent_pose=(2, 2), kernel=2, stride=1).double()
    pose = torch.randn(1, 5, 4, 2, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, _: layer(Capsules(x)), (pose, layer.weight), fast_mode=True)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(TorchcapsError, match="kernel of 5 with stride 1 does not fit 4x6 capsules"):
        ConvTransform((4, 6), 2, 3, kernel=5)
    with pytest.raises(TorchcapsError, match="1 <= stride <= kernel"):
        ConvTransform((9, 9), 2, 3, kernel=2, stride=3)
    with pytest.raises(TorchcapsError, match="the number of rows must stay 4"):
        ConvTransform((9, 9), 2, 3, kernel=2, parent_pose=(2, 4))
    with pytest.raises(TorchcapsError, match="the number of columns must stay 4"):
        ConvTransform((9, 9), 2, 3, kernel=2, parent_pose=(4, 2), multiply="left")
    with pytest.raises(TorchcapsError, match="side of the transform 'rigth' is unknown: did you mean 'right'"):
        ConvTransform((9, 9), 2, 3, kernel=2, multiply="rigth")


@pytest.mark.parametrize("multiply", ["right", "left"])
@pytest.mark.parametrize("kind", ["conv", "class"])
def test_a_transform_that_starts_near_the_identity_passes_poses_on(multiply: str, kind: str) -> None:
    settings: dict[str, Any] = {"multiply": multiply, "start": "identity"}
    layer: Transform = (
        ConvTransform((3, 3), 2, 5, kernel=3, spread=0.0, **settings)
        if kind == "conv"
        else PositionSharedTransform((3, 3), 2, 5, spread=0.0, **settings)
    )
    children = torch.randn(2, 3, 3, 2, 16)
    votes = layer(Capsules(children))
    torch.testing.assert_close(votes, children.flatten(1, 3)[:, None, :, None].expand_as(votes))


def test_the_noise_around_the_identity_is_a_tenth() -> None:
    torch.manual_seed(0)
    random, near = (ConvTransform((6, 6), 8, 8, kernel=3, start=start) for start in ("random", "identity"))
    assert near.weight.shape == random.weight.shape
    offset = near.weight.view(72, 4, 8, 4) - torch.eye(4)[:, None]
    assert offset.std().item() == pytest.approx(0.1, rel=0.05)
    assert offset.mean().item() == pytest.approx(0, abs=0.01)
    assert random.weight.std().item() == pytest.approx(0.5, rel=0.05)


def test_a_start_that_is_impossible_is_refused() -> None:
    with pytest.raises(TorchcapsError, match="needs equal poses, got 1x8 to 1x16: use start 'random'"):
        ConvTransform((3, 3), 2, 5, child_pose=(1, 8), parent_pose=(1, 16), kernel=3, start="identity")
    with pytest.raises(TorchcapsError, match="start of the transform 'identty' is unknown: did you mean 'identity'"):
        create_model("matrix-capsnet", start="identty")
