"""Fused dynamic routing agrees with the plain implementation and with the loop reference."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import Tensor

from tests.kernels.test_em import worst
from tests.reference import dynamic as reference
from torchcaps.functional import squash
from torchcaps.kernels import dynamic
from torchcaps.kernels.dispatch import use_kernels
from torchcaps.layers import CapsuleLayer, Capsules, DenseTransform, SharedTransform, Transform
from torchcaps.routing import create_routing


def make(
    iterations: int, size: int = 16, *, kind: type[Transform] = DenseTransform, inner: int = 8, routing: str = "dynamic"
) -> tuple[CapsuleLayer, Capsules]:
    """A layer and 18 images: one full tile of the loops, and one that is almost empty."""
    transform = kind(12, 5, inner, size)
    torch.nn.init.normal_(transform.weight, std=0.2)  # large votes amplify the rounding of both forms
    options = {"iterations": iterations} if routing == "dynamic" else {}
    layer = CapsuleLayer(transform, create_routing(routing, transform.shape, **options), squash)
    return layer, Capsules(torch.randn(18, 2, 2, 3, inner, requires_grad=True))


def gradients(layer: CapsuleLayer, capsules: Capsules) -> tuple[Tensor, tuple[Tensor, ...]]:
    out = layer(capsules).pose
    slopes = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out)
    return out.detach(), torch.autograd.grad((out * slopes).sum(), [capsules.pose, *layer.parameters()])


@pytest.mark.parametrize("kind", [DenseTransform, SharedTransform])
@pytest.mark.parametrize(("size", "inner"), [(16, 8), (6, 5), (16, 16), (4, 20)])
@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_agrees_with_the_plain_form_and_its_gradient(
    iterations: int, size: int, inner: int, kind: type[Transform], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamic, "CHUNK", 5 * 16 * 5 * size)  # gradients of five children's votes at a time
    layer, capsules = make(iterations, size, kind=kind, inner=inner)
    assert layer._route_factors(capsules) is not None
    fused, fused_gradients = gradients(layer, capsules)
    with use_kernels("plain"):
        plain, plain_gradients = gradients(layer, capsules)
    assert worst([fused], [plain]) < 1e-5
    assert worst(fused_gradients, plain_gradients) < 1e-4


@pytest.mark.parametrize("kind", [DenseTransform, SharedTransform])
def test_uniform_routing_sums_before_it_multiplies(kind: type[Transform]) -> None:
    layer, capsules = make(1, kind=kind, routing="uniform")
    assert layer._route_factors(capsules) is not None
    fused, fused_gradients = gradients(layer, capsules)
    with use_kernels("plain"):
        assert layer._route_factors(capsules) is None
        plain, plain_gradients = gradients(layer, capsules)
    assert worst([fused], [plain]) < 1e-5
    assert worst(fused_gradients, plain_gradients) < 1e-5


def test_a_few_images_use_the_plain_form_unless_forced() -> None:
    layer, capsules = make(3)
    few = Capsules(capsules.pose.detach()[: dynamic.FEWEST_IMAGES - 1])
    assert layer._route_factors(few) is None
    expected = layer(few).pose
    with use_kernels("fast"):
        assert layer._route_factors(few) is not None
        assert worst([layer(few).pose], [expected]) < 1e-5


def test_agrees_with_the_paper_s_loops() -> None:
    layer, capsules = make(3)
    votes = layer.transform(capsules)
    expected = [reference.dynamic_routing(image[0].tolist(), 3)[0] for image in votes]
    found = layer(capsules).pose.flatten(1, 3)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-4, atol=1e-5)


def test_a_gradient_can_be_differentiated_again() -> None:
    layer, capsules = make(3)

    def twice() -> Tensor:
        (slope,) = torch.autograd.grad(layer(capsules).pose.square().sum(), capsules.pose, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), capsules.pose)[0]

    fused = twice()
    with use_kernels("plain"):
        expected = twice()
    assert worst([fused], [expected]) < 1e-3


def test_threads_change_rounding_alone() -> None:
    layer, capsules = make(3)
    alone, alone_gradients = gradients(layer, capsules)
    torch.set_num_threads(2)
    try:
        together, together_gradients = gradients(layer, capsules)
    finally:
        torch.set_num_threads(1)
    assert torch.equal(alone, together)
    assert worst(together_gradients, alone_gradients) < 1e-5


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e4, 1e12])
def test_finite_for_any_votes(scale: float) -> None:
    layer, capsules = make(3)
    extreme = Capsules((scale * capsules.pose.detach()).requires_grad_())
    pose, slopes = gradients(layer, extreme)
    assert torch.isfinite(pose).all()
    assert all(torch.isfinite(slope).all() for slope in slopes)


@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("choice", ["fast", "plain"])
def test_an_empty_batch(choice: str, iterations: int) -> None:
    layer, capsules = make(iterations)
    with use_kernels(choice):
        result, slopes = gradients(layer, Capsules(capsules.pose.detach()[:0].requires_grad_()))
    assert result.shape == (0, 1, 1, 5, 16)
    assert not any(slope.any() for slope in slopes)


def test_memory_is_freed() -> None:
    layer, capsules = make(3)
    routed = layer._route_factors(capsules)
    assert routed is not None
    watched = weakref.ref(routed.pose)
    del routed
    assert watched() is None
