"""Competition over all parents of a child, in layers where several positions see the same child."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.reference import competition as reference
from tests.reference import dynamic
from torchcaps.functional import softmax_over_parents, squash
from torchcaps.layers import ConvTransform
from torchcaps.routing import create_routing

GRIDS = [((5, 5), 3, 1), ((5, 6), 3, 2), ((4, 4), 3, 2), ((6, 4), 2, 2), ((3, 3), 3, 1), ((7, 5), 4, 3)]


def transform(grid: tuple[int, int], kernel: int, stride: int) -> ConvTransform:
    return ConvTransform(grid, 2, 3, child_pose=(2, 2), parent_pose=(2, 2), kernel=kernel, stride=stride)


def numbered(layer: ConvTransform, grid: tuple[int, int]) -> list[list[int]]:
    """The reference's children as numbers of their own."""
    seen = reference.windows(*grid, 2, layer.kernel, layer.stride)
    numbers: dict[tuple[int, int, int], int] = {}
    return [[numbers.setdefault(child, len(numbers)) for child in slots] for slots in seen]


@pytest.mark.parametrize(("grid", "kernel", "stride"), GRIDS)
def test_shares_agree_with_the_reference(grid: tuple[int, int], kernel: int, stride: int) -> None:
    layer = transform(grid, kernel, stride)
    logits = torch.randn(2, layer.shape.positions, layer.shape.children, 3)
    expected = [reference.shares(image.tolist(), numbered(layer, grid)) for image in logits]
    torch.testing.assert_close(softmax_over_parents(logits, layer.child_index), torch.tensor(expected))


@pytest.mark.parametrize(("grid", "kernel", "stride"), GRIDS)
def test_children_are_numbered_without_gaps(grid: tuple[int, int], kernel: int, stride: int) -> None:
    layer = transform(grid, kernel, stride)
    assert layer.child_index is not None
    used = layer.child_index.unique()
    assert torch.equal(used, torch.arange(len(used)))
    same = [[a == b for row in numbered(layer, grid) for b in row] for row in numbered(layer, grid) for a in row]
    flat = layer.child_index.flatten()
    assert torch.equal(flat.unsqueeze(1) == flat, torch.tensor(same))


def test_a_corner_child_has_one_position_and_an_inner_child_all_of_them() -> None:
    layer = transform((5, 5), 3, 1)
    shares = softmax_over_parents(torch.zeros(1, 9, 18, 3), layer.child_index)
    assert shares[0, 0, 0, 0] == pytest.approx(1 / 3)  # corner: three types at one position
    assert shares[0, 0, 2, 0] == pytest.approx(1 / 6)  # border: two positions
    assert shares[0, 0, 16, 0] == pytest.approx(1 / 27)  # center: nine positions


def test_shares_are_exact_far_from_zero() -> None:
    layer = transform((5, 5), 3, 2)
    logits = torch.randn(1, 4, 18, 3, dtype=torch.float64)
    shifted = softmax_over_parents(logits + 1e6, layer.child_index)
    torch.testing.assert_close(shifted, softmax_over_parents(logits, layer.child_index), rtol=1e-6, atol=0)
    steep = softmax_over_parents(logits.float() * 1e30, layer.child_index)
    assert torch.isfinite(steep).all()


def test_first_and_second_gradient() -> None:
    layer = transform((5, 5), 3, 2)
    logits = torch.randn(1, 4, 18, 3, dtype=torch.float64, requires_grad=True)

    def shares(logits: Tensor) -> Tensor:
        return softmax_over_parents(logits, layer.child_index)

    assert torch.autograd.gradcheck(shares, logits, fast_mode=True)
    assert torch.autograd.gradgradcheck(shares, logits, fast_mode=True)


def test_compiles_in_one_graph() -> None:
    layer = transform((5, 5), 3, 2)
    logits = torch.randn(2, 4, 18, 3)
    compiled = torch.compile(softmax_over_parents, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(logits, layer.child_index), softmax_over_parents(logits, layer.child_index))


def normalized(votes: Tensor, axis: tuple[int, ...]) -> Tensor:
    """Dynamic routing of public code: couplings that sum to one over these axes of (P, I, J)."""
    logits = torch.zeros(votes.shape[:-1])
    for _ in range(3):
        weights = logits.exp()
        pose = squash(torch.einsum("pij,pijd->pjd", weights / weights.sum(axis, keepdim=True), votes))
        logits = logits + torch.einsum("pijd,pjd->pij", votes, pose)
    return pose


def test_dynamic_routing_competes_over_all_parents() -> None:
    layer = transform((5, 5), 3, 2)
    assert layer.child_index is not None
    votes = torch.randn(1, 4, 18, 3, 4)
    routed = create_routing("dynamic", layer.shape)(votes, child_index=layer.child_index, nonlinearity=squash)
    got = squash(routed.pose[0])
    expected = dynamic.competing_dynamic_routing(votes[0].tolist(), numbered(layer, (5, 5)), 3)
    torch.testing.assert_close(got, torch.tensor(expected), rtol=1e-5, atol=1e-6)
    for wrong in ((2,), (1,)):  # over the types of one position; over children
        assert not torch.allclose(got, normalized(votes[0], wrong), atol=1e-2)
