"""Batch normalization with ReLU in two passes gives the results of PyTorch's layers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.kernels.batch_norm import batch_norm_relu
from torchcaps.kernels.dispatch import use_kernels
from torchcaps.layers import Sequential

SHAPES = [(3, 16, 7, 5), (1, 32, 9, 6), (5, 48, 1, 1), (4, 64, 8, 8), (3, 10, 4, 6), (2, 20, 2, 6), (2, 5, 4, 8)]


def make(batch: int, channels: int, height: int, width: int) -> tuple[Tensor, nn.BatchNorm2d]:
    """Maps whose channels have other means than deviations, and a layer with weights of both signs."""
    torch.manual_seed(0)
    maps = torch.randn(batch, channels, height, width) * 3 + 10 * torch.randn(channels, 1, 1)
    norm = nn.BatchNorm2d(channels)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    norm.running_mean = torch.randn(channels)
    norm.running_var = torch.rand(channels) + 0.5
    return maps.requires_grad_(), norm


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).detach().abs().max() / expected.detach().abs().max())


@pytest.mark.parametrize("adds", [False, True], ids=["alone", "with a shortcut"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_agrees_with_pytorch(shape: tuple[int, ...], training: bool, adds: bool) -> None:
    """Result, gradients and running statistics, against float64."""
    maps, norm = make(*shape)
    norm.train(training)
    exact, precise = maps.detach().double().requires_grad_(), copy.deepcopy(norm).double()
    added = torch.randn(shape, requires_grad=True) if adds else None
    found = batch_norm_relu(maps, norm, added)
    expected = F.relu(precise(exact) + (0 if added is None else added.double()))
    assert "BatchNormReLU" in found.grad_fn.name()
    assert relative(found, expected) < 3e-6
    slopes = torch.randn(expected.shape)
    rest = [] if added is None else [added]
    ours = torch.autograd.grad(found, [maps, *norm.parameters(), *rest], slopes)
    theirs = torch.autograd.grad(expected, [exact, *precise.parameters(), *rest], slopes.double())
    for own, other in zip(ours, theirs, strict=True):
        assert own.shape == other.shape
        assert relative(own, other) < 2e-5
    for own, other in zip(norm.buffers(), precise.buffers(), strict=True):
        torch.testing.assert_close(own, other.to(own.dtype), rtol=1e-6, atol=1e-6)


def test_a_large_mean_costs_no_precision() -> None:
    maps, norm = make(4, 16, 6, 6)
    moved = maps.detach() * 0.01 + 1000
    assert relative(batch_norm_relu(moved, norm), F.relu(copy.deepcopy(norm).double()(moved.double()))) < 1e-3


def test_only_what_is_needed_has_a_gradient() -> None:
    maps, norm = make(*SHAPES[0])
    norm.eval().requires_grad_(False)
    batch_norm_relu(maps, norm).sum().backward()
    assert maps.grad is not None
    assert norm.weight.grad is None
    norm.requires_grad_(True)
    batch_norm_relu(maps.detach(), norm).sum().backward()
    assert norm.weight.grad is not None
    norm.requires_grad_(False)
    shortcut = torch.ones_like(maps, requires_grad=True)
    batch_norm_relu(maps.detach(), norm, shortcut).sum().backward()
    assert shortcut.grad is not None
    assert 0 < shortcut.grad.mean() < 1


@pytest.mark.parametrize("training", [True, False])
def test_a_gradient_can_be_differentiated_again(training: bool) -> None:
    maps, norm = make(*SHAPES[0])
    norm.train(training)

    def twice(found: Tensor) -> Tensor:
        (slopes,) = torch.autograd.grad(found.square().sum(), maps, create_graph=True)
        return torch.autograd.grad(slopes.square().sum(), norm.weight)[0]

    plain, shortcut = copy.deepcopy(norm), torch.randn_like(maps)
    found = twice(batch_norm_relu(maps, norm)), twice(batch_norm_relu(maps, norm, shortcut))
    norm = plain
    assert relative(found[0], twice(F.relu(plain(maps)))) < 1e-4
    assert relative(found[1], twice(F.relu(plain(maps) + shortcut))) < 1e-4


def test_layouts_and_threads() -> None:
    maps, norm = make(*SHAPES[3])
    maps = maps.detach()
    shortcut = torch.randn_like(maps)
    expected = batch_norm_relu(maps, norm, shortcut)
    assert torch.equal(batch_norm_relu(maps.to(memory_format=torch.channels_last), norm, shortcut), expected)
    assert torch.equal(batch_norm_relu(maps, norm, shortcut.to(memory_format=torch.channels_last)), expected)
    torch.set_num_threads(2)
    assert torch.equal(batch_norm_relu(maps, norm, shortcut), expected)
    torch.set_num_threads(1)


def test_numbers_that_are_not_finite_are_kept() -> None:
    maps, norm = make(*SHAPES[0])
    maps = maps.detach()
    maps[0, 3, 2, 2] = torch.nan
    found = batch_norm_relu(maps, norm)
    assert found[:, 3].isnan().all()
    assert not found[:, :3].isnan().any()


class _Doubled(nn.BatchNorm2d):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm2d(3),
        nn.BatchNorm2d(16, affine=False),
        nn.BatchNorm2d(16, track_running_stats=False),
        nn.BatchNorm2d(16, momentum=None),
        _Doubled(16),
    ],
    ids=str,
)
def test_other_layers_are_pytorchs(norm: nn.BatchNorm2d) -> None:
    torch.manual_seed(0)
    maps = torch.randn(2, norm.num_features, 5, 5)
    plain = copy.deepcopy(norm)
    assert torch.equal(batch_norm_relu(maps, norm), F.relu(plain(maps)))
    assert torch.equal(batch_norm_relu(maps, norm, maps), F.relu(plain(maps) + maps))


def test_a_layer_with_a_hook_is_called() -> None:
    norm, called = nn.BatchNorm2d(16), list[Tensor]()
    norm.register_forward_hook(lambda *given: called.append(given[2]))
    maps = torch.randn(2, 16, 4, 4)
    found = batch_norm_relu(maps, norm, maps)
    assert torch.equal(found, F.relu(called[0] + maps))


def test_refuses_what_pytorch_refuses() -> None:
    norm = nn.BatchNorm2d(16)
    for shape, message in (
        ((1, 16, 1, 1), "more than 1 value"),
        ((2, 16), "4D input"),
        ((2, 32, 3, 3), "running_mean"),
    ):
        with pytest.raises((ValueError, RuntimeError), match=message):
            batch_norm_relu(torch.zeros(shape), norm)


def test_a_sequence_is_that_of_pytorch() -> None:
    """Same weights, same results, and the pair in one pass."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16)]
    ours, theirs = Sequential(*layers, nn.Tanh()), nn.Sequential(*copy.deepcopy(layers), nn.Tanh())
    assert list(ours.state_dict()) == list(theirs.state_dict())
    maps = torch.randn(2, 3, 9, 9)
    torch.testing.assert_close(ours(maps), theirs(maps))
    assert "BatchNormReLU" in Sequential(*layers[:3])(maps).grad_fn.name()
    with use_kernels("plain"):
        assert torch.equal(ours(maps), theirs(maps))


def test_layers_with_hooks_are_called_one_by_one() -> None:
    layers = Sequential(nn.BatchNorm2d(16), nn.ReLU())
    maps, called = torch.randn(2, 16, 4, 4), list[str]()
    for name, layer in layers.named_children():
        layer.register_forward_hook(lambda *given, name=name: called.append(name))
    expected = nn.Sequential(*copy.deepcopy(layers))(maps)
    called.clear()
    assert torch.equal(layers(maps), expected)
    assert called == ["0", "1"]
