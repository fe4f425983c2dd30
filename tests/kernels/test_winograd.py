"""Winograd's convolution gives the results of PyTorch's, in the layers that use it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.kernels import autotune
from torchcaps.kernels.autotune import Case, form_is_chosen, use_forms, worth_measuring
from torchcaps.kernels.dispatch import use_kernels
from torchcaps.kernels.winograd import winograd_convolution
from torchcaps.layers import Conv2d

SHAPES = [(3, 16, 16, 7, 7), (2, 32, 64, 9, 6), (1, 48, 32, 12, 5), (5, 16, 48, 2, 2), (2, 64, 128, 3, 8)]


def make(batch: int, inputs: int, outputs: int, height: int, width: int) -> list[Tensor]:
    torch.manual_seed(0)
    maps, weight = torch.randn(batch, inputs, height, width), torch.randn(outputs, inputs, 3, 3)
    return [each.requires_grad_() for each in (maps, weight, torch.randn(outputs))]


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_agrees_with_pytorch(shape: tuple[int, ...], padding: int) -> None:
    """Result and gradients, against float64; odd sizes, all widths of the tiles, more and fewer tiles than a block."""
    given = make(*shape)
    if min(shape[3:]) + 2 * padding < 3:
        pytest.skip("smaller than the kernel")
    found = winograd_convolution(*given, padding)
    exact = [each.detach().double().requires_grad_() for each in given]
    expected = F.conv2d(*exact, padding=padding)
    assert relative(found, expected) < 2e-6
    slopes = torch.randn(expected.shape)
    ours = torch.autograd.grad(found, given, slopes)
    for own, other in zip(ours, torch.autograd.grad(expected, exact, slopes.double()), strict=True):
        assert own.shape == other.shape
        assert relative(own, other) < 1e-5


def test_only_what_is_needed_has_a_gradient() -> None:
    maps, weight, bias = make(*SHAPES[0])
    winograd_convolution(maps, weight.detach(), None).sum().backward()
    assert maps.grad is not None
    winograd_convolution(maps.detach(), weight, bias.detach()).sum().backward()
    assert weight.grad is not None
    assert bias.grad is None


def test_a_gradient_can_be_differentiated_again() -> None:
    given = make(*SHAPES[0])

    def twice(maps: Tensor) -> Tensor:
        slopes = torch.autograd.grad(maps.square().sum(), given, create_graph=True)
        return torch.autograd.grad(sum(each.square().sum() for each in slopes), given[1])[0]

    assert relative(twice(winograd_convolution(*given)), twice(F.conv2d(*given, padding=1))) < 1e-5


def test_layouts_threads_and_an_empty_batch() -> None:
    maps, weight, bias = (each.detach() for each in make(*SHAPES[1]))
    expected = winograd_convolution(maps, weight, bias)
    last = torch.channels_last
    assert torch.equal(winograd_convolution(maps.to(memory_format=last), weight.to(memory_format=last), bias), expected)
    torch.set_num_threads(2)
    assert torch.equal(winograd_convolution(maps, weight, bias), expected)
    torch.set_num_threads(1)
    assert winograd_convolution(maps[:0], weight, bias).shape == (0, *expected.shape[1:])


def test_numbers_that_are_not_finite_stay_with_their_image() -> None:
    maps, weight, bias = (each.detach() for each in make(*SHAPES[1]))
    expected = winograd_convolution(maps, weight, bias)
    maps[0, 3, 2, 2] = torch.nan
    found = winograd_convolution(maps, weight, bias)
    assert found[0].isnan().any()
    assert torch.equal(found[1], expected[1])


@pytest.mark.parametrize(
    ("options", "used"),
    [
        ({}, True),
        ({"bias": False}, True),
        ({"stride": 2}, False),
        ({"padding": 0}, True),
        ({"padding": 2}, False),
        ({"groups": 2}, False),
        ({"dilation": 2}, False),
        ({"padding_mode": "reflect"}, False),
    ],
    ids=str,
)
def test_layer_is_a_drop_in(options: dict[str, object], used: bool) -> None:
    torch.manual_seed(0)
    layer = Conv2d(32, 32, 3, **{"padding": 1, **options})  # type: ignore[arg-type]
    maps, results = torch.randn(16, 32, 16, 16), []
    for choice in ("plain", "fast"):
        with use_kernels(choice):
            results.append(layer(maps))
    assert relative(results[1], results[0]) < 2e-6
    assert ("Winograd" in results[1].grad_fn.name()) is used


def test_few_tiles_and_few_channels_are_not_measured() -> None:
    usual = {"batch": 64, "inputs": 32, "outputs": 32, "size": 28, "kernel": 3, "stride": 1, "mode": "training"}
    for changes, worth in (({}, True), ({"batch": 4}, False), ({"inputs": 3}, False), ({"outputs": 24}, False)):
        assert worth_measuring(Case(**(usual | changes), threads=1, form="winograd", padding=1)) is worth


def test_the_form_is_recorded_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(64, 32, 32, 28, 3, 1, "training", 1, "winograd", padding=1)
    forms: dict[str, str] = {}
    monkeypatch.setattr(autotune, "form_is_faster", lambda case: True)
    with use_forms(forms):
        assert form_is_chosen(case)
        assert form_is_chosen(replace(case, padding=0))  # another convolution
    assert list(forms.values()) == ["winograd"] * 2
    with use_forms(dict.fromkeys(forms, "pytorch")):
        assert not form_is_chosen(case)


def test_both_forms_are_timed() -> None:
    seconds = autotune.time_forms(Case(2, 16, 16, 8, 3, 1, "training", 1, "winograd", padding=1))
    assert set(seconds) == {"pytorch", "winograd"}
    assert min(seconds.values()) > 0
