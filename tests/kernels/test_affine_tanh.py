"""The fused affine map and tanh agree with the plain form."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.kernels.test_em import worst
from torchcaps.kernels.dispatch import use_kernels
from torchcaps.layers import AffineTanh


def make(size: int = 16, types: int = 4) -> tuple[AffineTanh, Tensor]:
    torch.manual_seed(size)
    layer = AffineTanh(types, size)
    torch.nn.init.normal_(layer.bias)
    return layer, torch.randn(5, 3, 3, types, size, requires_grad=True)


@pytest.mark.parametrize(("size", "types", "fused"), [(16, 4, True), (32, 3, True), (64, 1, True), (8, 4, False)])
def test_agrees_with_the_plain_form(size: int, types: int, fused: bool) -> None:
    layer, pose = make(size, types)
    slopes, results = torch.randn(pose.shape), []
    for choice in ("auto", "plain"):
        with use_kernels(choice):
            mapped = layer(pose)
            results.append([mapped, *torch.autograd.grad(mapped, [pose, *layer.parameters()], slopes)])
            assert ("FusedAffineTanh" in mapped.grad_fn.name()) is (fused and choice == "auto")
    assert worst(*results) < 1e-5


def test_large_and_broken_numbers() -> None:
    layer, _ = make()
    torch.nn.init.eye_(layer.weight[0])
    torch.nn.init.zeros_(layer.bias)
    values = torch.cat([torch.arange(-300.0, 300.0, 0.37), torch.tensor([-1e30, -1e-3, 0.0, 1e-3, 1e30])])
    with torch.no_grad():
        mapped = layer(torch.nn.functional.pad(values[:, None, None], (0, 15, 0, 3)))[:, 0, 0]
        torch.testing.assert_close(mapped, values.tanh(), rtol=0, atol=2e-7)
        assert layer(torch.full((1, 4, 16), torch.nan)).isnan().all()


def test_a_gradient_can_be_differentiated_again() -> None:
    layer, pose = make()

    def twice() -> Tensor:
        (slope,) = torch.autograd.grad(layer(pose).square().sum(), pose, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), pose)[0]

    fused = twice()
    with use_kernels("plain"):
        assert worst([fused], [twice()]) < 1e-4


def test_layouts_threads_and_an_empty_batch() -> None:
    layer, pose = make()
    expected = layer(pose.detach())
    other = pose.detach().permute(4, 3, 2, 1, 0).contiguous().permute(4, 3, 2, 1, 0)
    assert torch.equal(layer(other), expected)
    torch.set_num_threads(2)
    assert torch.equal(layer(other), expected)
    torch.set_num_threads(1)
    (slope,) = torch.autograd.grad(layer(pose[:0]).sum(), pose)
    assert not slope.any()
