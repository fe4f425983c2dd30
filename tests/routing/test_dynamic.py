from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.reference import dynamic as reference
from torchcaps.errors import TorchcapsError
from torchcaps.functional import squash
from torchcaps.routing.base import LayerShape
from torchcaps.routing.dynamic import DynamicRouting, route_plainly


def dynamic(votes: Tensor, **settings: Any) -> DynamicRouting:
    """A routing for a layer that these votes come from."""
    return DynamicRouting(LayerShape(*votes.shape[1:]), **settings)


def by_the_book(votes: Tensor, iterations: int) -> Tensor:
    """Poses after squash, image by image, from the slow reference."""
    return torch.tensor([reference.dynamic_routing(image[0].tolist(), iterations)[0] for image in votes]).unsqueeze(1)


def routed(votes: Tensor, iterations: int) -> Tensor:
    return squash(route_plainly(votes, iterations, None, squash).pose)


@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_agrees_with_the_reference(iterations: int) -> None:
    votes = torch.randn(3, 1, 20, 6, 8)
    expected = by_the_book(votes, iterations)
    torch.testing.assert_close(routed(votes, iterations), expected, rtol=1e-5, atol=1e-6)


def test_gradient_in_double_precision() -> None:
    votes = torch.randn(2, 6, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: route_plainly(v.unsqueeze(1), 3, None, squash).pose, votes)


def test_permuting_children_changes_nothing_and_permuting_parents_permutes() -> None:
    votes = torch.randn(2, 1, 12, 5, 4)
    routing = dynamic(votes)
    pose = routing(votes, nonlinearity=squash).pose
    children, parents = torch.randperm(12), torch.randperm(5)
    torch.testing.assert_close(routing(votes[:, :, children], nonlinearity=squash).pose, pose)
    torch.testing.assert_close(routing(votes[:, :, :, parents], nonlinearity=squash).pose, pose[:, :, parents])


def test_images_do_not_influence_each_other() -> None:
    """Agreement averaged over the batch, a common defect, would fail here."""
    votes = torch.randn(4, 1, 12, 5, 4)
    together = dynamic(votes)(votes, nonlinearity=squash).pose
    alone = torch.cat([dynamic(votes)(image.unsqueeze(0), nonlinearity=squash).pose for image in votes])
    torch.testing.assert_close(together, alone)


def defective(votes: Tensor, axis: int, average: bool) -> Tensor:
    """Public code's variants: softmax over children (axis 2), agreement averaged over the batch."""
    logits = votes.new_zeros(votes.shape[:4])
    for _ in range(3):
        pose = squash(torch.einsum("bpij,bpijd->bpjd", logits.softmax(axis), votes))
        agreed = torch.einsum("bpijd,bpjd->bpij", votes, pose)
        logits = logits + (agreed.mean(0, keepdim=True) if average else agreed)
    return pose


@pytest.mark.parametrize(("axis", "average"), [(2, False), (3, True)], ids=["softmax over children", "batch average"])
def test_classic_defects_would_be_caught(axis: int, average: bool) -> None:
    votes = torch.randn(3, 1, 20, 6, 8)
    expected = by_the_book(votes, 3)
    torch.testing.assert_close(defective(votes, 3, False), expected, rtol=1e-5, atol=1e-6)  # the copy is right
    assert not torch.allclose(defective(votes, axis, average), expected, atol=1e-2)


def test_couplings_of_every_iteration_on_request() -> None:
    votes = torch.randn(2, 1, 9, 4, 5)
    traced = dynamic(votes, iterations=3)(votes, nonlinearity=squash)
    assert len(traced.couplings) == 3
    expected = reference.dynamic_routing(votes[1, 0].tolist(), 3)[1]
    for got, want in zip(traced.couplings, expected, strict=True):
        torch.testing.assert_close(got[1, 0], torch.tensor(want), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(got.sum(3), torch.ones(2, 1, 9))
    torch.testing.assert_close(traced.pose, dynamic(votes)(votes, nonlinearity=squash).pose)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from([0.0, 1e-30, 1e-8, 1.0, 1e4, 1e15]), st.booleans(), st.integers(1, 5))
def test_finite_for_any_finite_votes(scale: float, equal: bool, iterations: int) -> None:
    generator = torch.Generator().manual_seed(0)
    votes = scale * (torch.ones(2, 1, 8, 3, 4) if equal else torch.randn(2, 1, 8, 3, 4, generator=generator))
    votes.requires_grad_()
    pose = dynamic(votes, iterations=iterations)(votes, nonlinearity=squash).pose
    squash(pose).square().sum().backward()
    assert torch.isfinite(pose).all()
    assert torch.isfinite(votes.grad).all()


def test_bad_input_is_refused() -> None:
    with pytest.raises(TorchcapsError, match=r"expects votes as floats \(B, P, I, J, D\), got torch.float32 \(2, 3\)"):
        DynamicRouting(LayerShape(1, 2, 3, 4))(torch.zeros(2, 3), nonlinearity=squash)
    with pytest.raises(TorchcapsError, match="at least 1 iteration, got 0"):
        DynamicRouting(LayerShape(1, 2, 3, 4), iterations=0)


def test_half_precision_votes_are_routed_in_float32() -> None:
    votes = torch.randn(2, 1, 9, 4, 5).bfloat16()
    pose = dynamic(votes)(votes, nonlinearity=squash).pose
    assert pose.dtype == torch.float32
    torch.testing.assert_close(pose, dynamic(votes)(votes.float(), nonlinearity=squash).pose)
