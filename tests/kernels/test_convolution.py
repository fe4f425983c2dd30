"""FFT convolution gives the values and gradients of PyTorch's convolution."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.kernels import autotune, convolution, tiled_convolution
from torchcaps.kernels.autotune import Case, form_is_faster, worth_measuring
from torchcaps.kernels.convolution import dft_plan, spectral_convolution, to_spectrum
from torchcaps.kernels.dispatch import use_kernels
from torchcaps.layers import Conv2d

# batch, channels in and out, image, kernel, stride: sides that the stride divides and not, odd and even ones
SHAPES = [(3, 4, 5, 20, 9, 2), (2, 3, 4, 13, 5, 1), (2, 3, 4, 11, 3, 2), (2, 2, 3, 15, 5, 3), (1, 1, 1, 5, 5, 1)]
SHAPES += [(2, 70, 3, 32, 9, 2), (2, 3, 130, 9, 3, 1)]  # more channels than are transformed at once, largest side
# Tiles: several, a last one that is not full, strides, and more channels than are transformed at once.
SHAPES += [(2, 3, 4, 32, 9, 1), (2, 3, 4, 23, 5, 1), (2, 3, 4, 45, 9, 2), (2, 70, 3, 52, 5, 3), (8, 16, 32, 24, 9, 1)]
SHAPES += [(8, 16, 32, 13, 5, 2), (16, 32, 64, 9, 5, 1), (8, 16, 32, 9, 5, 1)]  # sizes of our own matrix products


def relative(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).detach().norm() / expected.detach().norm())


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    form_is_faster.cache_clear()
    yield tmp_path
    form_is_faster.cache_clear()


def leaves(batch: int, inputs: int, outputs: int, size: int, kernel: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(batch + size)
    images, weight = torch.randn(batch, inputs, size, size), torch.randn(outputs, inputs, kernel, kernel)
    return images.requires_grad_(), weight.requires_grad_()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_same_as_pytorch(shape: tuple[int, ...], layout: torch.memory_format) -> None:
    *sizes, stride = shape
    images, weight = leaves(*sizes)
    expected = F.conv2d(images, weight, stride=stride)
    slopes = torch.randn_like(expected)
    expected_slopes = torch.autograd.grad(expected, (images, weight), slopes)
    ours = [each.detach().contiguous(memory_format=layout).requires_grad_() for each in (images, weight)]
    found = spectral_convolution(*ours, stride)
    assert relative(found, expected) < 2e-6
    for slope, other in zip(torch.autograd.grad(found, ours, slopes), expected_slopes, strict=True):
        assert relative(slope, other) < 2e-6


@pytest.mark.parametrize("threads", [1, 2])
def test_our_products_in_chunks_and_on_threads(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two chunks of 32 output channels; the gradient of the images is a sum over them."""
    images, weight = leaves(8, 16, 64, 13, 5)
    plan = dft_plan(7)
    monkeypatch.setattr(convolution, "CHUNK", 32 * 2 * plan.bins * 4 * 16)
    assert [chunk.stop for chunk in convolution._chunks(plan, weight, 2)] == [32, 64]
    torch.set_num_threads(threads)
    found, expected = spectral_convolution(images, weight, 2), F.conv2d(images, weight, stride=2)
    assert relative(found, expected) < 2e-6
    slopes = torch.randn_like(expected)
    ours, theirs = (torch.autograd.grad(each, (images, weight), slopes) for each in (found, expected))
    torch.set_num_threads(1)
    for own, other in zip(ours, theirs, strict=True):
        assert relative(own, other) < 2e-6


def test_paper_size_layer() -> None:
    """Compared with float64: the error of PyTorch's float32 sum of 20,736 products is larger on some processors."""
    images, weight = leaves(2, 256, 256, 20, 9)
    expected = F.conv2d(images.double(), weight.double(), stride=2)
    assert relative(spectral_convolution(images, weight, 2), expected) < 1e-6


@pytest.mark.parametrize(("size", "kernel", "stride"), [(8, 3, 2), (24, 5, 1)])
def test_gradient_can_be_differentiated_again(size: int, kernel: int, stride: int) -> None:
    images, weight = leaves(2, 3, 4, size, kernel)
    results = []
    for form in (spectral_convolution, lambda i, w, s: F.conv2d(i, w, stride=s)):
        first = torch.autograd.grad(form(images, weight, stride).pow(3).sum(), images, create_graph=True)[0]
        results.append(torch.autograd.grad(first.square().sum(), (images, weight)))
    for found, expected in zip(*results, strict=True):
        assert relative(found, expected) < 1e-5


def test_spectrum_is_kept_until_the_weight_changes() -> None:
    images, weight = leaves(2, 3, 4, 10, 5)
    images, fixed = images.detach(), weight.detach().clone()
    before = spectral_convolution(images, fixed, 2)
    assert torch.equal(spectral_convolution(images, fixed, 2), before)
    fixed.mul_(2)
    assert relative(spectral_convolution(images, fixed, 2), 2 * before) < 1e-6
    fixed.data.mul_(2)  # past autograd's counter
    assert relative(spectral_convolution(images, fixed, 2), 4 * before) < 1e-6


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_spectrum_of_a_trainable_weight_is_kept_between_answers(
    mode: Callable[[], AbstractContextManager[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    images, weight = leaves(2, 3, 4, 10, 5)
    with mode():
        first = spectral_convolution(images.detach(), weight, 2)

    def images_only(plan: convolution.Plan, values: Tensor, stride: int) -> Tensor:
        assert values.shape != weight.shape, "the spectrum was made again"
        return to_spectrum(plan, values, stride)

    monkeypatch.setattr(convolution, "to_spectrum", images_only)
    with mode():
        assert torch.equal(spectral_convolution(images.detach(), weight, 2), first)


def test_spectrum_kept_in_inference_mode_serves_an_attack() -> None:
    images, weight = leaves(2, 3, 4, 10, 5)
    expected = torch.autograd.grad(F.conv2d(images, weight).square().sum(), images)[0]
    weight.requires_grad_(False)
    with torch.inference_mode():
        spectral_convolution(images.detach(), weight, 1)
    found = torch.autograd.grad(spectral_convolution(images, weight, 1).square().sum(), images)[0]
    assert relative(found, expected) < 2e-6


def test_weight_made_in_inference_mode() -> None:
    with torch.inference_mode():
        images, weight = torch.rand(2, 3, 10, 10), torch.rand(4, 3, 5, 5)
        assert relative(spectral_convolution(images, weight, 2), F.conv2d(images, weight, stride=2)) < 2e-6


def test_images_of_an_attack_get_their_gradient() -> None:
    images, weight = leaves(2, 3, 4, 10, 5)
    expected = torch.autograd.grad(F.conv2d(images, weight).square().sum(), images)[0]
    found = torch.autograd.grad(spectral_convolution(images, weight.detach(), 1).square().sum(), images)[0]
    assert relative(found, expected) < 2e-6


@pytest.mark.parametrize("side", [1, 2, 3, 10, 11, 16])
def test_spectrum_is_the_fourier_transform(side: int) -> None:
    """Compared with torch.fft: every bin of the half spectrum that is stored, and no pixel is lost."""
    torch.manual_seed(side)
    images = torch.randn(2, 3, side, side)
    plan = dft_plan(side)
    found = to_spectrum(plan, images, 1).view(plan.bins, 2, 2, 3)
    expected = torch.fft.fft2(images.double())[..., : side // 2 + 1]
    for k, row in enumerate(plan.numbers.tolist()):
        for q, number in enumerate(row):
            if number >= 0:
                value = torch.complex(found[number, 0], found[number, 1])
                torch.testing.assert_close(value.to(torch.complex128), expected[:, :, q, k], rtol=1e-5, atol=1e-5)
    assert 2 * plan.bins >= side**2


def test_kernels_in_chunks_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    images, weight = leaves(2, 3, 7, 12, 5)
    results = []
    for chunk in (convolution.CHUNK, 1):
        monkeypatch.setattr(convolution, "CHUNK", chunk)
        maps = spectral_convolution(images, weight, 2)
        results.append([maps, *torch.autograd.grad(maps.square().sum(), (images, weight))])
    for whole, chunked in zip(*results, strict=True):
        assert relative(chunked, whole) < 1e-6


def test_an_image_that_is_not_finite_does_not_spoil_the_others() -> None:
    images, weight = leaves(3, 3, 4, 12, 5)
    expected = spectral_convolution(images.detach(), weight, 2)
    damaged = images.detach().clone()
    damaged[1] = torch.nan
    found = spectral_convolution(damaged, weight, 2)
    assert torch.equal(found[[0, 2]], expected[[0, 2]])
    assert found[1].isnan().all()


def test_threads_give_the_same() -> None:
    images, weight = leaves(3, 3, 4, 12, 5)
    alone = torch.autograd.grad(spectral_convolution(images, weight, 2).square().sum(), (images, weight))
    torch.set_num_threads(2)
    try:
        together = torch.autograd.grad(spectral_convolution(images, weight, 2).square().sum(), (images, weight))
    finally:
        torch.set_num_threads(1)
    for found, expected in zip(together, alone, strict=True):
        assert relative(found, expected) < 1e-6


def test_layer_is_a_drop_in(own_cache: Path) -> None:
    """Same parameters, same names, same result whatever form runs; unusual layers keep PyTorch's form."""
    torch.manual_seed(0)
    images = torch.rand(8, 16, 12, 12)
    wide = {"padding": 3, "padding_mode": "circular"}, {"padding": (1, 2)}, {"padding": "same"}, {"padding": "valid"}
    for options in ({}, {"stride": 2}, {"padding": 2}, {"bias": False}, {"groups": 2}, {"dilation": 2}, *wide):
        layer = Conv2d(16, 16, 5, **options)
        results = []
        for choice in ("plain", "fast", "auto"):
            with use_kernels(choice):
                results.append(layer(images))
        assert list(layer.state_dict()) == list(torch.nn.Conv2d(16, 16, 5, **options).state_dict())
        assert all(relative(each, results[0]) < 2e-6 for each in results)


@pytest.mark.parametrize("learns", [False, True])
def test_an_empty_batch(learns: bool) -> None:
    images = torch.rand(0, 16, 12, 12, requires_grad=True)
    layer = Conv2d(16, 16, 5, 2).requires_grad_(learns)
    with use_kernels("fast"):
        both = layer(images), spectral_convolution(images, layer.weight, 2)
    for maps in both:
        assert maps.shape == (0, 16, 4, 4)
        (slope,) = torch.autograd.grad(maps.sum(), images)
        assert slope.shape == images.shape


def test_forced_form_is_the_one_that_runs() -> None:
    torch.manual_seed(0)
    layer, images = Conv2d(16, 16, 5), torch.rand(8, 16, 12, 12)
    with use_kernels("plain"):
        own = layer(images)
    assert torch.equal(own, F.conv2d(images, layer.weight, layer.bias))
    with use_kernels("fast"):
        assert not torch.equal(layer(images), own)


def test_measured_once_and_kept(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(batch=8, inputs=16, outputs=16, size=12, kernel=5, stride=1, mode="training", threads=1)
    state = torch.random.get_rng_state()
    first = form_is_faster(case)
    assert torch.equal(torch.random.get_rng_state(), state), "a run's random numbers must not depend on measuring"

    def never(case: Case) -> dict[str, float]:
        raise AssertionError("measured twice")

    monkeypatch.setattr(autotune, "time_forms", never)
    form_is_faster.cache_clear()  # as a new process
    assert form_is_faster(case) == first


@pytest.mark.parametrize("content", ["", "[]", "{", '{"seconds": 3}', '{"seconds": {"pytorch": "x", "spectral": 1}}'])
def test_damaged_memory_of_measurements_is_measured_again(own_cache: Path, content: str) -> None:
    case = Case(batch=8, inputs=16, outputs=16, size=8, kernel=5, stride=1, mode="inference", threads=1)
    found = form_is_faster(case)
    (kept,) = (own_cache / "torchcaps" / "convolutions").glob("*/*.json")
    kept.write_text(content, encoding="utf-8")
    assert not autotune.measured_cases()
    form_is_faster.cache_clear()
    assert form_is_faster(case) in (True, False)
    assert len(autotune.measured_cases()) == 1
    assert isinstance(found, bool)


def test_two_processes_that_measure_at_once_agree(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(batch=8, inputs=16, outputs=16, size=8, kernel=5, stride=1, mode="inference", threads=1)
    form_is_faster(case)
    (kept,) = (own_cache / "torchcaps" / "convolutions").glob("*/*.json")

    def while_another_writes(case: Case) -> dict[str, float]:
        kept.write_text('{"seconds": {"pytorch": 2.0, "spectral": 1.0}}', encoding="utf-8")
        return {"pytorch": 1.0, "spectral": 2.0}

    kept.unlink()
    monkeypatch.setattr(autotune, "time_forms", while_another_writes)
    form_is_faster.cache_clear()
    assert form_is_faster(case) is True, "what the other wrote counts"


def test_a_form_that_was_disturbed_at_first_is_timed_longer_and_wins() -> None:
    """As measured beside another training: 0.25 s in the first rounds, later 0.18 s, where PyTorch has 0.28 s."""
    rounds = {"pytorch": iter([0.5] + 12 * [0.28]), "spectral": iter([0.5] + 4 * [0.25] + 8 * [0.18])}
    seconds = autotune.least_seconds(lambda form: next(rounds[form]), "spectral")
    assert seconds == {"pytorch": 0.28, "spectral": 0.18}
    assert autotune.wins(seconds)


@pytest.mark.parametrize("other", [0.1, 0.5])
def test_a_clear_result_is_timed_for_a_few_rounds_only(other: float) -> None:
    calls = list[str]()

    def run(form: str) -> float:
        calls.append(form)
        return 0.28 if form == "pytorch" else other

    autotune.least_seconds(run, "spectral")
    assert calls == (1 + autotune.ROUNDS) * ["pytorch", "spectral"]


def test_hopeless_cases_are_not_measured() -> None:
    good = Case(batch=32, inputs=256, outputs=256, size=20, kernel=9, stride=2, mode="training", threads=1)
    assert worth_measuring(good)
    assert worth_measuring(Case(**{**vars(good), "size": 64})), "in tiles"
    for change in ({"batch": 1}, {"inputs": 1}, {"kernel": 3}, {"size": 64, "kernel": 25}):
        assert not worth_measuring(Case(**{**vars(good), **change}))


@pytest.mark.parametrize("largest", [0, 2**30])
def test_tiles_in_chunks_of_images(monkeypatch: pytest.MonkeyPatch, largest: int) -> None:
    """Chunks of eight images and a last one of three; both gradients in one pass over them, or one after the other."""
    monkeypatch.setattr(tiled_convolution, "LARGEST_SPECTRUM", largest)
    images, weight = leaves(19, 16, 32, 24, 9)
    monkeypatch.setattr(tiled_convolution, "CHUNKS", (8 * 2 * 130 * 4 * 16, 2**30))
    tiles = tiled_convolution.plan_tiles(24, 9, 1)
    chunks = tiled_convolution._chunks(images, 32, 1, tiles)
    assert [chunk.stop for chunk in chunks] == [8, 16, 19]
    found, expected = spectral_convolution(images, weight, 1), F.conv2d(images, weight)
    slopes = torch.randn_like(expected)
    ours, theirs = (torch.autograd.grad(each, (images, weight), slopes) for each in (found, expected))
    for own, other in zip((found, *ours), (expected, *theirs), strict=True):
        assert relative(own, other) < 2e-6
