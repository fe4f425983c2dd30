"""Fused EM routing agrees with the plain implementation."""

from __future__ import annotations

import subprocess
import sys
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.kernels.dispatch import kernel_choice, use_kernels
from torchcaps.layers import CapsuleLayer, Capsules, ConvTransform, CoordinateAddition, PositionSharedTransform
from torchcaps.layers.transform import Transform
from torchcaps.routing import create_routing


def conv(grid: int, types: int, parents: int, kernel: int, stride: int, pose: tuple[int, int] = (4, 4)) -> Transform:
    return ConvTransform((grid, grid), types, parents, kernel=kernel, stride=stride, child_pose=pose, parent_pose=pose)


TRANSFORMS = {
    "stride 1": lambda: conv(5, 3, 5, 3, 1),
    "stride 2, children left over": lambda: conv(6, 2, 16, 3, 2),
    "kernel 2": lambda: conv(4, 3, 7, 2, 1),
    "vector pose": lambda: conv(4, 2, 4, 3, 1, (1, 6)),
    "vectors of 16": lambda: conv(4, 2, 4, 3, 1, (1, 16)),
    "vectors of 13, filled up": lambda: conv(4, 2, 3, 3, 1, (1, 13)),
    "vectors of 9 to 16": lambda: ConvTransform((4, 4), 2, 3, kernel=3, child_pose=(1, 9), parent_pose=(1, 16)),
    "rectangular pose": lambda: conv(4, 2, 4, 3, 1, (2, 3)),
    "one position": lambda: PositionSharedTransform((3, 3), 4, 5),
    "coordinates": lambda: CoordinateAddition(PositionSharedTransform((3, 3), 4, 5)),
}


def make(name: str, **settings: Any) -> tuple[CapsuleLayer, Capsules]:
    transform = TRANSFORMS[name]()
    routing = create_routing("em", replace(transform.shape, activations=True), **settings)
    inner = transform.transform if isinstance(transform, CoordinateAddition) else transform
    grid = (inner.child_grid if isinstance(inner, PositionSharedTransform) else None) or {
        "stride 1": (5, 5),
        "stride 2, children left over": (6, 6),
    }.get(name, (4, 4))
    types = len(inner.weight) if isinstance(inner, PositionSharedTransform) else len(inner.weight) // inner.kernel**2
    size = inner.child_pose[0] * inner.child_pose[1]
    pose = torch.randn(3, *grid, types, size, requires_grad=True)
    active = torch.rand(3, *grid, types, requires_grad=True)
    return CapsuleLayer(transform, routing, lambda pose: pose), Capsules(pose, active)


def gradients(layer: CapsuleLayer, capsules: Capsules) -> tuple[list[Tensor], list[Tensor]]:
    """Result and gradients with fixed random slopes."""
    out = layer(capsules)
    generator = torch.Generator().manual_seed(1)
    loss = sum((each * torch.randn(each.shape, generator=generator).to(each)).sum() for each in out)
    inputs = [capsules.pose, capsules.activation, *layer.parameters()]
    return [each.detach() for each in out], list(torch.autograd.grad(loss, inputs))


def worst(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Largest difference relative to the largest number of each tensor."""
    pairs = zip(found, expected, strict=True)
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in pairs)


SETTINGS = {
    "mdl": {},
    "mixing": {"activation": "mixing"},
    "damped": {"mean_damping": 0.3},
    "mixing, damped": {"activation": "mixing", "mean_damping": 0.3},
}


@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_agrees_with_the_plain_form(name: str, settings: str, iterations: int) -> None:
    layer, capsules = make(name, iterations=iterations, **SETTINGS[settings])
    assert layer._route_factors(capsules) is not None
    fused, fused_gradients = gradients(layer, capsules)
    with use_kernels("plain"):
        plain, plain_gradients = gradients(layer, capsules)
    assert worst(fused, plain) < 1e-5
    assert worst(fused_gradients, plain_gradients) < 1e-4


@pytest.mark.parametrize("gradient_steps", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["stride 2, children left over", "coordinates"])
def test_a_gradient_through_the_last_iterations_agrees_with_the_plain_form(name: str, gradient_steps: int) -> None:
    layer, capsules = make(name, iterations=4, gradient_steps=gradient_steps, mean_damping=0.1)
    fused, fused_gradients = gradients(layer, capsules)
    with use_kernels("plain"):
        plain, plain_gradients = gradients(layer, capsules)
    assert worst(fused, plain) < 1e-5
    assert worst(fused_gradients, plain_gradients) < 1e-4


@pytest.mark.parametrize("iterations", [3, 5])
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", ["stride 1", "vector pose", "coordinates"])
def test_as_near_to_float64_as_the_plain_form(name: str, settings: str, iterations: int) -> None:
    """Five iterations of EM amplify rounding errors in both implementations, so both are compared with float64."""
    layer, capsules = make(name, iterations=iterations, **SETTINGS[settings])
    fused, fused_gradients = gradients(layer, capsules)
    with use_kernels("plain"):
        plain, _ = gradients(layer, capsules)
    layer = layer.double()
    double = Capsules(*(each.detach().double().requires_grad_() for each in capsules))
    exact, exact_gradients = gradients(layer, double)  # float64 takes the plain form by itself
    assert worst(fused, exact) < max(1e-5, 4 * worst(plain, exact))
    assert worst(fused_gradients, exact_gradients) < 1e-4


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def test_threads_change_rounding_alone_and_repeat_to_the_bit(two_threads: None) -> None:
    layer, capsules = make("stride 1")
    first, second = gradients(layer, capsules), gradients(layer, capsules)
    assert all(torch.equal(a, b) for a, b in zip(first[0] + first[1], second[0] + second[1], strict=True))
    torch.set_num_threads(1)
    alone = gradients(layer, capsules)
    assert all(torch.equal(a, b) for a, b in zip(first[0], alone[0], strict=True))
    assert worst(first[1], alone[1]) < 1e-5


def test_a_gradient_can_be_differentiated_again() -> None:
    layer, capsules = make("stride 1")

    def twice() -> Tensor:
        (slope,) = torch.autograd.grad(layer(capsules).activation.square().sum(), capsules.pose, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), capsules.pose)[0]

    fused = twice()
    with use_kernels("plain"):
        assert worst([fused], [twice()]) < 1e-4


def test_memory_is_freed() -> None:
    """A reference cycle between a result and its graph would never be freed."""
    layer, capsules = make("stride 1")
    routed = layer._route_factors(capsules)
    assert routed is not None
    watched = weakref.ref(routed.activation)
    del routed
    assert watched() is None


@pytest.mark.parametrize("scale", [0.0, 1e-20, 1e4, 1e12])
@pytest.mark.parametrize("active", [0.0, 1.0])
@pytest.mark.parametrize("settings", SETTINGS)
def test_finite_for_any_votes(settings: str, scale: float, active: float) -> None:
    layer, capsules = make("stride 1", **SETTINGS[settings])
    pose = (scale * capsules.pose.detach()).requires_grad_()
    extreme = Capsules(pose, torch.full_like(capsules.activation, active).requires_grad_())
    result, slopes = gradients(layer, extreme)
    assert all(torch.isfinite(each).all() for each in result + slopes)


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("recompute", [False, True])
def test_an_empty_batch(name: str, recompute: bool) -> None:
    layer, capsules = make(name, recompute=recompute)
    empty = Capsules(*(each.detach()[:0].requires_grad_() for each in capsules))
    for choice in ("fast", "plain"):
        with use_kernels(choice):
            result, slopes = gradients(layer, empty)
            filled, _ = gradients(layer, capsules)
        assert [each.shape[1:] for each in result] == [each.shape[1:] for each in filled]
        assert [len(each) for each in result] == [0, 0]
        assert not any(slope.any() for slope in slopes)


def test_the_choice_can_be_forced_and_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernel_choice() == "auto"
    monkeypatch.setenv("TORCHCAPS_KERNELS", "plain")
    assert kernel_choice() == "plain"
    monkeypatch.setenv("TORCHCAPS_KERNELS", "plian")
    with pytest.raises(TorchcapsError, match="did you mean 'plain'"):
        kernel_choice()


@pytest.mark.parametrize("name", ["stride 1", "vector pose", "coordinates"])
def test_an_image_does_not_depend_on_the_batch(name: str) -> None:
    """Blocks of 16 cells, whatever images they belong to, and groups of images change no bit of the result."""
    layer, capsules = make(name)
    pose, active = (torch.cat([each.detach()] * 7) for each in capsules)  # 21 images: two groups
    whole = layer(Capsules(pose, active))
    for image in (0, 1, 20):
        alone = layer(Capsules(pose[image : image + 1], active[image : image + 1]))
        assert torch.equal(alone.pose[0], whole.pose[image])
        torch.testing.assert_close(alone.activation[0], whole.activation[image], rtol=1e-6, atol=0)  # torch.sigmoid's


def test_small_groups_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, capsules = make("stride 1")
    whole, slopes = gradients(layer, capsules)
    monkeypatch.setattr("torchcaps.kernels.em.GROUP_BYTES", 1)
    groups, group_slopes = gradients(layer, capsules)
    assert all(torch.equal(a, b) for a, b in zip(whole, groups, strict=True))
    assert worst(group_slopes, slopes) < 1e-5


def test_a_number_that_is_not_finite_stays_one() -> None:
    """Training stops at a loss that is not finite, so the kernel must not hide it."""
    layer, capsules = make("stride 1")
    pose = capsules.pose.detach().clone()
    pose[0, 0, 0, 0, 0] = torch.nan
    assert layer(Capsules(pose, capsules.activation)).pose[0].isnan().any()


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_the_first_use_in_a_process_may_be_a_prediction(mode: str) -> None:
    program = (
        "import torch, torchcaps\n"
        "model = torchcaps.create_model('matrix-capsnet', size='laptop', image_size=20)\n"
        f"with torch.{mode}():\n"
        "    print(model(torch.rand(1, 1, 20, 20)).scores.shape)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300)
    assert "torch.Size([1, 10])" in done.stdout, done.stderr
