"""The Triton kernels are held to the plain definitions, interpreted on the CPU: TRITON_INTERPRET=1 pytest -m gpu."""

from __future__ import annotations

import doctest
import importlib
import os
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.kernels import test_dynamic, test_em
from tests.kernels.test_em import conv, worst
from torchcaps.functional import squash
from torchcaps.kernels import dispatch
from torchcaps.kernels.dispatch import use_kernels
from torchcaps.layers import CapsuleLayer, Capsules, CoordinateAddition, DenseTransform, PositionSharedTransform
from torchcaps.layers.transform import Transform
from torchcaps.routing import create_routing

interpreted = os.environ.get("TRITON_INTERPRET") == "1"
needs_interpreter = [
    pytest.mark.gpu,
    pytest.mark.skipif(not interpreted, reason="needs TRITON_INTERPRET=1: make test-gpu-kernels"),
]

# Small, since an interpreted kernel takes milliseconds for a vote, but with several tiles, chunks and padded sizes.
EM_LAYERS: dict[str, tuple[Callable[[], Transform], tuple[int, ...]]] = {
    "stride 1": (lambda: conv(4, 1, 5, 3, 1), (4, 4, 1, 16)),
    "stride 2, children left over": (lambda: conv(6, 1, 3, 3, 2, (2, 2)), (6, 6, 1, 4)),
    "kernel 2": (lambda: conv(3, 3, 7, 2, 1, (2, 2)), (3, 3, 3, 4)),
    "vector pose": (lambda: conv(3, 2, 4, 2, 1, (1, 6)), (3, 3, 2, 6)),
    "rectangular pose": (lambda: conv(3, 2, 4, 2, 1, (2, 3)), (3, 3, 2, 6)),
    "one position, several chunks": (lambda: PositionSharedTransform((5, 5), 1, 3), (5, 5, 1, 16)),
    "coordinates": (lambda: CoordinateAddition(PositionSharedTransform((2, 2), 3, 5)), (2, 2, 3, 16)),
}


def make_em(name: str, **settings: Any) -> tuple[CapsuleLayer, Capsules]:
    build, shape = EM_LAYERS[name]
    transform = build()
    layer = CapsuleLayer(
        transform, create_routing("em", replace(transform.shape, activations=True), **settings), lambda pose: pose
    )
    return layer, Capsules(torch.randn(3, *shape, requires_grad=True), torch.rand(3, *shape[:3], requires_grad=True))


def make_dynamic(iterations: int, children: int, size: int) -> tuple[CapsuleLayer, Capsules]:
    transform = DenseTransform(children, 5, 3, size)
    torch.nn.init.normal_(transform.weight)
    layer = CapsuleLayer(transform, create_routing("dynamic", transform.shape, iterations=iterations), squash)
    return layer, Capsules(torch.randn(3, 1, 1, children, 3, requires_grad=True))


def takes_triton(layer: CapsuleLayer, capsules: Capsules) -> bool:
    routed = layer._route_factors(capsules)
    assert routed is not None
    node = routed.pose.grad_fn
    while node is not None and "Triton" not in type(node).__name__:
        node = node.next_functions[0][0] if node.next_functions else None
    return node is not None


class TestInterpreted:
    pytestmark = needs_interpreter

    @pytest.mark.parametrize(
        ("name", "iterations"), [(name, 3) for name in EM_LAYERS] + [("stride 1", 1), ("kernel 2", 2)]
    )
    def test_em_routing_agrees_with_the_plain_form(self, name: str, iterations: int) -> None:
        layer, capsules = make_em(name, iterations=iterations)
        fused, fused_gradients = test_em.gradients(layer, capsules)
        with use_kernels("plain"):
            plain, plain_gradients = test_em.gradients(layer, capsules)
        assert worst(fused, plain) < 1e-5
        assert worst(fused_gradients, plain_gradients) < 1e-4

    @pytest.mark.parametrize(("iterations", "children", "size"), [(1, 5, 4), (2, 9, 16), (3, 20, 6), (5, 4, 4)])
    def test_dynamic_routing_agrees_with_the_plain_form(self, iterations: int, children: int, size: int) -> None:
        layer, capsules = make_dynamic(iterations, children, size)
        fused, fused_gradients = test_dynamic.gradients(layer, capsules)
        with use_kernels("plain"):
            plain, plain_gradients = test_dynamic.gradients(layer, capsules)
        assert worst([fused], [plain]) < 1e-5
        assert worst(fused_gradients, plain_gradients) < 1e-4

    def test_layers_take_the_kernels_by_themselves(self) -> None:
        assert takes_triton(*make_em("kernel 2"))
        assert takes_triton(*make_dynamic(2, 4, 4))

    def test_what_the_kernels_cannot_do_takes_the_plain_form(self) -> None:
        layer, capsules = make_em("kernel 2")
        with use_kernels("plain"):
            assert layer._route_factors(capsules) is None
        double = Capsules(*(each.detach().double() for each in capsules))
        assert layer.double()._route_factors(double) is None
        transform = DenseTransform(4, 100, 3, 128)  # the votes of one child do not fit into registers
        wide = CapsuleLayer(transform, create_routing("dynamic", transform.shape), squash)
        assert wide._route_factors(Capsules(torch.randn(2, 1, 1, 4, 3))) is None

    def test_half_precision_is_computed_in_float32(self) -> None:
        layer, capsules = make_em("kernel 2")
        half = layer.bfloat16()
        few = Capsules(*(each.detach().bfloat16() for each in capsules))
        routed = half._route_factors(few)
        assert routed is not None
        assert routed.pose.dtype == torch.float32
        with use_kernels("plain"):
            exact = layer.float()(Capsules(*(each.float() for each in few)))
        assert worst([routed.pose], [exact.pose.flatten(1, 2)]) < 1e-5
        assert half.bfloat16()(few).pose.dtype == torch.bfloat16

    @pytest.mark.parametrize("scale", [0.0, 1e-20, 1e12])
    def test_finite_for_any_votes(self, scale: float) -> None:
        layer, capsules = make_em("kernel 2")
        extreme = Capsules((scale * capsules.pose.detach()).requires_grad_(), capsules.activation)
        result, slopes = test_em.gradients(layer, extreme)
        assert all(torch.isfinite(each).all() for each in result + slopes)
        layer, capsules = make_dynamic(3, 5, 4)
        pose, more = test_dynamic.gradients(layer, Capsules((scale * capsules.pose.detach()).requires_grad_()))
        assert all(torch.isfinite(each).all() for each in (pose, *more))

    def test_clamped_votes_have_the_plain_gradient(self) -> None:
        layer, capsules = make_em("kernel 2", iterations=2)
        large = Capsules((1e6 * capsules.pose.detach()).requires_grad_(), capsules.activation)
        _, fused = test_em.gradients(layer, large)
        with use_kernels("plain"):
            _, plain = test_em.gradients(layer, large)
        assert worst(fused, plain) < 1e-4

    @pytest.mark.parametrize("routing", ["em", "dynamic"])
    def test_the_same_batch_gives_the_same_bits(self, routing: str) -> None:
        if routing == "em":
            layer, capsules = make_em("stride 2, children left over", iterations=2)
            first, second = (test_em.gradients(layer, capsules)[1] for _ in range(2))
        else:
            layer, capsules = make_dynamic(2, 5, 4)
            first, second = (list(test_dynamic.gradients(layer, capsules)[1]) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))

    @pytest.mark.parametrize("routing", ["em", "dynamic"])
    def test_a_gradient_can_be_differentiated_again(self, routing: str) -> None:
        layer, capsules = make_em("kernel 2") if routing == "em" else make_dynamic(3, 5, 4)

        def twice() -> Tensor:
            (slope,) = torch.autograd.grad(layer(capsules).pose.square().sum(), capsules.pose, create_graph=True)
            return torch.autograd.grad(slope.square().sum(), capsules.pose)[0]

        fused = twice()
        with use_kernels("plain"):
            assert worst([fused], [twice()]) < 1e-3

    @pytest.mark.parametrize("routing", ["em", "dynamic"])
    def test_an_empty_batch(self, routing: str) -> None:
        layer, capsules = make_em("kernel 2") if routing == "em" else make_dynamic(3, 5, 4)
        present = [each for each in capsules if each is not None]
        empty = Capsules(*(each.detach()[:0].requires_grad_() for each in present))
        pose = layer(empty).pose
        assert pose.shape == (0, *layer(capsules).pose.shape[1:])
        assert not any(slope.any() for slope in torch.autograd.grad(pose.sum(), [empty.pose, layer.transform.weight]))

    @pytest.mark.parametrize("routing", ["em", "dynamic"])
    def test_memory_is_given_back(self, routing: str) -> None:
        layer, capsules = make_em("kernel 2") if routing == "em" else make_dynamic(3, 5, 4)
        routed = layer._route_factors(capsules)
        assert routed is not None
        watched = weakref.ref(routed.pose if routed.activation is None else routed.activation)
        del routed
        assert watched() is None


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["triton_em", "triton_support"])
def test_examples_in_docstrings(name: str) -> None:
    pytest.importorskip("triton", reason="the GPU kernels need the extra 'gpu'")
    found = doctest.testmod(importlib.import_module(f"torchcaps.kernels.{name}"))
    assert found.attempted > 0
    assert not found.failed


class TestCheckAtFirstUse:
    """On a GPU the first use of a layer compares the kernels with the plain definition."""

    pytestmark = pytest.mark.gpu

    def check(self, fused: Callable[[Tensor], tuple[Tensor]], size: int) -> bool:
        pytest.importorskip("triton", reason="the GPU kernels need the extra 'gpu'")
        from torchcaps.kernels.triton_support import kernels_agree

        return kernels_agree("test", fused, lambda each: (each.exp(),), [torch.empty(size)])

    def test_kernels_that_agree_are_used(self) -> None:
        before = torch.get_rng_state()
        assert self.check(lambda each: (each.exp(),), 2)
        assert torch.equal(before, torch.get_rng_state())

    def test_wrong_kernels_are_not_used_and_warn_once(self) -> None:
        with pytest.warns(RuntimeWarning, match=r"test routing are not used on cpu, plain PyTorch is: they differ"):
            assert not self.check(lambda each: (1.1 * each.exp(),), 3)
        assert not self.check(lambda each: (1.1 * each.exp(),), 3)

    def test_kernels_that_fail_are_not_used(self) -> None:
        def fails(each: Tensor) -> tuple[Tensor]:
            raise RuntimeError("no C compiler")

        with pytest.warns(RuntimeWarning, match="RuntimeError: no C compiler"):
            assert not self.check(fails, 4)


@pytest.mark.skipif(interpreted, reason="interpreted kernels take CPU tensors")
def test_a_cpu_takes_no_gpu_kernels() -> None:
    assert not dispatch.runs_on_triton(torch.zeros(1))


@pytest.mark.parametrize(("capability", "supported"), [((6, 1), False), ((7, 0), True), ((9, 4), True)])
def test_triton_needs_a_recent_gpu(
    capability: tuple[int, int], supported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    dispatch.triton_supports.cache_clear()
    assert dispatch.triton_supports(torch.device("cuda")) is supported
    assert not dispatch.triton_supports(torch.device("mps"))
    dispatch.triton_supports.cache_clear()
