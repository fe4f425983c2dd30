"""Products of votes and the votes of 4x4 matrices, in one pass, give the results of PyTorch's sums of products."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from torchcaps.functional import agreement, clamp_votes, squared_distance, weighted_squares, weighted_votes
from torchcaps.kernels.dispatch import use_kernels
from torchcaps.kernels.vote_products import spread_poses
from torchcaps.layers import Capsules, ConvTransform
from torchcaps.layers.transform import matrix_votes

SHAPES = [(3, 1, 7, 2, 16), (2, 5, 3, 4, 32), (1, 9, 11, 1, 48), (4, 2, 1, 3, 16)]
FUNCTIONS: dict[str, tuple[Callable[..., Tensor], str]] = {
    "weighted votes": (weighted_votes, "couplings votes"),
    "agreement": (agreement, "votes poses"),
    "weighted squares": (weighted_squares, "couplings votes poses"),
    "squared distance": (squared_distance, "votes poses precision"),
}


def make(shape: tuple[int, ...], names: str) -> list[Tensor]:
    """Inputs in a memory layout of their own, as transforms give them."""
    torch.manual_seed(0)
    batch, positions, _, parents, size = shape
    sizes = {"votes": shape, "couplings": shape[:4], "poses": (batch, positions, parents, size)}
    sizes["precision"] = sizes["poses"]
    made = [torch.randn(sizes[name]).transpose(0, 1).contiguous().transpose(0, 1) for name in names.split()]
    return [each.requires_grad_() for each in made]


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).detach().abs().max() / expected.detach().abs().max())


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_agrees_with_the_definition(shape: tuple[int, ...], name: str) -> None:
    """Results, gradients and second derivatives, against float64, whose form is PyTorch's."""
    function, names = FUNCTIONS[name]
    given = make(shape, names)
    exact = [each.detach().double().requires_grad_() for each in given]
    found, expected = function(*given), function(*exact)
    assert "Backward" in found.grad_fn.name()
    assert "Einsum" not in found.grad_fn.name()
    assert relative(found, expected) < 2e-6
    slopes = torch.randn(expected.shape)
    firsts = [
        torch.autograd.grad(result, inputs, slopes.to(result.dtype), create_graph=True)
        for result, inputs in ((found, given), (expected, exact))
    ]
    for own, other in zip(*firsts, strict=True):
        assert relative(own, other) < 5e-6
    seconds = [
        torch.autograd.grad(sum(each.square().sum() for each in first), inputs)
        for first, inputs in zip(firsts, (given, exact), strict=True)
    ]
    for own, other in zip(*seconds, strict=True):
        assert relative(own, other) < 1e-5
    for own, other in zip(torch.autograd.grad(function(*given), given, slopes), firsts[1], strict=True):
        assert relative(own, other) < 5e-6  # without create_graph


def test_spread_poses_are_products() -> None:
    couplings, poses = make((2, 3, 4, 5, 16), "couplings poses")
    found = spread_poses(couplings, poses)
    assert torch.equal(found, couplings.unsqueeze(4) * poses.unsqueeze(2))


def test_other_sizes_and_types_are_pytorchs() -> None:
    for shape, dtype in (((2, 1, 3, 2, 8), torch.float32), ((2, 1, 3, 2, 16), torch.float64)):
        couplings, votes = (each.to(dtype) for each in make(shape, "couplings votes"))
        assert "SumVotes" not in weighted_votes(couplings, votes).grad_fn.name()
    empty = weighted_votes(torch.zeros(0, 1, 3, 2), torch.zeros(0, 1, 3, 2, 16))
    assert empty.shape == (0, 1, 2, 16)


def test_threads_give_the_same_results() -> None:
    couplings, votes = make((4, 5, 6, 3, 16), "couplings votes")
    expected = weighted_votes(couplings, votes)
    torch.set_num_threads(2)
    found = weighted_votes(couplings, votes)
    torch.set_num_threads(1)
    assert torch.equal(found, expected)


def test_only_large_votes_are_clamped() -> None:
    (votes,) = make(SHAPES[1], "votes")
    assert clamp_votes(votes, 100.0).grad_fn.name().startswith("Clone")  # made contiguous, and not clamped
    assert clamp_votes(votes, 0.5).abs().max() == 0.5
    unknown = votes.detach().clone()
    unknown[0, 0, 0, 0, 0] = torch.nan
    unknown[0, 0, 1, 0, 0] = 7.0
    found = clamp_votes(unknown, 5.0)
    assert found[0, 0, 0, 0, 0].isnan()
    assert found[0, 0, 1, 0, 0] == 5.0


@pytest.mark.parametrize(("batch", "positions", "slots", "parents"), [(3, 1, 7, 5), (2, 9, 4, 1), (1, 17, 2, 8)])
def test_matrix_votes_agree_with_the_definition(batch: int, positions: int, slots: int, parents: int) -> None:
    torch.manual_seed(0)
    given = [torch.randn(batch, positions, slots, 16), torch.randn(slots, 4, 4 * parents)]
    exact = [each.double().requires_grad_() for each in given]
    ours = [each.requires_grad_() for each in given]
    found, expected = (matrix_votes(*each, (4, 4), (4, 4), "right") for each in (ours, exact))
    assert "MatrixVotes" in found.grad_fn.name()
    assert relative(found, expected) < 1e-6
    slopes = torch.randn(expected.shape)
    theirs = torch.autograd.grad(expected, exact, slopes.double())
    for create_graph in (False, True):
        gradients = torch.autograd.grad(found, ours, slopes, create_graph=create_graph, retain_graph=True)
        for own, other in zip(gradients, theirs, strict=True):
            assert relative(own, other) < 2e-6


def test_a_layer_has_the_same_votes_in_both_forms() -> None:
    """Also with two threads, and where only one of pose and weight is trained."""
    torch.manual_seed(0)
    layer = ConvTransform((6, 5), 3, 4, kernel=3)
    pose = torch.randn(5, 6, 5, 3, 16, requires_grad=True)
    with use_kernels("plain"):
        expected = layer(Capsules(pose))
    slope = torch.randn_like(expected)
    wanted = [pose, layer.weight]
    for inputs in (wanted, wanted[:1], wanted[1:]):
        for each in wanted:
            each.requires_grad_(any(each is other for other in inputs))
        gradients = []
        for choice, threads in (("plain", 1), ("fast", 1), ("fast", 2)):
            torch.set_num_threads(threads)
            with use_kernels(choice):
                gradients.append(torch.autograd.grad(layer(Capsules(pose)), inputs, slope))
            torch.set_num_threads(1)
        for own in gradients[1:]:
            for found, other in zip(own, gradients[0], strict=True):
                assert relative(found, other) < 3e-6
