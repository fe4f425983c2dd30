"""Convolution by small Fourier transforms: the results of ``F.conv2d`` with a fraction of the arithmetic.

A 9x9 convolution of stride 2 is the sum of four of stride 1 with 5x5 kernels or smaller, one for each phase of the
pixels. In the Fourier domain a convolution of many channels is one matrix product per frequency, of images by (phases x
channels) with the kernels. The transforms are the loops in ``fourier_loops``. The plain definition is
``torch.nn.functional.conv2d``.

With X, W and Y the spectra of images, kernels and output, and G that of the output's gradient, each frequency has
Y = X W*, dX = G W and dW = X G*, with * for the complex conjugate. Real and imaginary parts are blocks of matrices:
X is (2B, F) and W is (2O, F). The kernels are processed in chunks of output channels, because their spectrum is
several times larger than they are.

Letters: B images, I and O channels, N side of a phase, F = s * s * I, with s the stride.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.grad import conv2d_input, conv2d_weight
from torch.utils.weak import WeakIdKeyDictionary

from torchcaps.kernels.dispatch import on_threads

LARGEST_SIDE = 16  # of a phase: the loops have tables for that many points
CHUNK = 5 * 2**20  # numbers of a kernel spectrum that is computed at once
PADDING = 48  # numbers between the bins of a spectrum: with a power of two in between they would share cache sets
LANES, ROWS, COLUMNS = 16, 8, 32  # our matrix products need multiples of these
LARGEST_TURNED = 2**15  # numbers of a transposed kernel at one frequency: larger ones do not stay in a cache
# Cached spectra of weights that are not being trained, valid until the weight changes.
_spectra: Any = WeakIdKeyDictionary()


def spectral_convolution(images: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Convolution without padding or bias: (B, I, H, H), (O, I, K, K) to (B, O, h, h), channels last."""
    if not len(images):  # empty batch
        return F.conv2d(images, weight, stride=stride)
    if -(-images.shape[2] // stride) > LARGEST_SIDE:
        from torchcaps.kernels.tiled_convolution import tiled_convolution

        return tiled_convolution(images, weight, stride)
    # Inside a Function gradients are disabled, and needs_input_grad is True even under no_grad.
    learns = torch.is_grad_enabled() and weight.requires_grad
    result: Tensor = _SpectralConvolution.apply(images, weight, stride, learns)  # type: ignore[no-untyped-call]
    return result


class _SpectralConvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, stride: int, learns: bool) -> Tensor:
        (batch, _, size, _), outputs = images.shape, len(weight)
        plan = dft_plan(-(-size // stride))
        spectrum = to_spectrum(plan, images, stride)  # (bins, 2B, F)
        product, padded = allocate_spectrum(plan, batch, outputs)
        chunks = _chunks(plan, weight, stride) if learns else [slice(0, outputs)]
        for chunk in chunks:
            kernels = (
                to_spectrum(plan, weight[chunk], stride) if learns else cached_spectrum(plan, weight, stride)
            )  # (bins, 2O, F)
            multiply_spectra_conjugate(spectrum, kernels, product.unflatten(1, (2, batch))[..., chunk])
        # The kernels' spectrum is kept if it is computed at once, and otherwise computed again in the backward pass.
        kept = [spectrum] if learns else []
        ctx.save_for_backward(images, weight, *kept, *([kernels] if len(chunks) == 1 else []))
        ctx.settings = plan, stride, chunks
        side = (size - weight.shape[2]) // stride + 1
        return _from_spectrum(plan, padded, (batch, outputs, side, side), 1)

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        images, weight, *kept = ctx.saved_tensors
        plan, stride, chunks = ctx.settings
        wanted = ctx.needs_input_grad
        if torch.is_grad_enabled():  # create_graph=True
            di = conv2d_input(images.shape, weight, slopes, stride) if wanted[0] else None
            dw = conv2d_weight(images, weight.shape, slopes, stride) if wanted[1] else None
            return di, dw, None, None
        batch, features = len(images), stride**2 * images.shape[1]
        slope = to_spectrum(plan, slopes, 1).unflatten(1, (2, batch))  # (bins, 2, B, O)
        dproduct, padded = allocate_spectrum(plan, batch, features) if wanted[0] else (None, None)
        dparts = []
        for number, chunk in enumerate(chunks):
            blocks = complex_blocks(slope[:, 0, :, chunk], slope[:, 1, :, chunk])  # (bins, 2B, 2O)
            if dproduct is not None:
                kernels = kept[-1] if len(chunks) == 1 else to_spectrum(plan, weight[chunk], stride)
                multiply_spectra(blocks, kernels, dproduct, added=number > 0)
            if wanted[1]:
                shape = (chunk.stop - chunk.start, *weight.shape[1:])
                dkernels, flat = allocate_spectrum(plan, shape[0], features)
                multiply_spectra(blocks.transpose(1, 2), kept[0], dkernels)
                dparts.append(_from_spectrum(plan, flat, shape, stride))
        dimages = None if padded is None else _from_spectrum(plan, padded, images.shape, stride)
        return dimages, torch.cat(dparts) if dparts else None, None, None


def complex_blocks(real: Tensor, imaginary: Tensor) -> Tensor:
    """Write complex matrices (bins, B, O) as real ones [[real, -imaginary], [imaginary, real]], (bins, 2B, 2O)."""
    bins, rows, columns = real.shape
    blocks = real.new_empty(bins, 2, rows, 2, columns)
    blocks[:, 0, :, 0], blocks[:, 1, :, 1] = real, real
    blocks[:, 1, :, 0] = imaginary
    torch.neg(imaginary, out=blocks[:, 0, :, 1])
    return blocks.flatten(3).flatten(1, 2)


def multiply_spectra_conjugate(spectrum: Tensor, kernels: Tensor, result: Tensor) -> None:
    """Y = X W* for each frequency: (bins, 2B, F) and (bins, 2O, F) to (bins, 2, B, O)."""
    from torchcaps.kernels.fourier_loops import multiply_conjugates

    bins, _, batch, outputs = result.shape
    features = spectrum.shape[2]
    if batch % ROWS or outputs % COLUMNS or features % LANES or features * outputs > LARGEST_TURNED:
        blocks = torch.bmm(spectrum, kernels.transpose(1, 2)).unflatten(2, (2, -1)).unflatten(1, (2, batch))
        torch.add(blocks[:, 0, :, 0], blocks[:, 1, :, 1], out=result[:, 0])
        torch.sub(blocks[:, 1, :, 0], blocks[:, 0, :, 1], out=result[:, 1])
        return
    images, parts = spectrum.unflatten(1, (2, batch)), kernels.unflatten(2, (-1, LANES)).unflatten(1, (2, outputs))
    given = images.numpy(), parts.numpy(), result.numpy()

    def some_bins(first: int, last: int) -> None:
        turned = torch.empty(3, features, outputs // LANES, LANES).numpy()
        multiply_conjugates(*given, turned, torch.empty(LANES, LANES).numpy(), first, last)

    on_threads(some_bins, bins)


def multiply_spectra(left: Tensor, right: Tensor, result: Tensor, *, added: bool = False) -> None:
    """result = left @ right for each frequency, or added to the result; PyTorch's product is slower if ours applies."""
    from torchcaps.kernels.fourier_loops import multiply_bins

    bins, rows, columns = result.shape
    if rows % ROWS or columns % COLUMNS:
        if added:
            result.baddbmm_(left, right)
        else:
            torch.bmm(left, right, out=result)
        return
    given = left.numpy(), right.numpy(), result.numpy(), int(added)
    on_threads(lambda first, last: multiply_bins(*given, first, last), bins)


class Tiling(NamedTuple):
    """How images are cut into squares, ``tiles`` per side and ``step`` apart, of which ``most`` pixels are used."""

    tiles: int
    step: int
    most: int


WHOLE = Tiling(1, 0, LARGEST_SIDE)


def to_spectrum(plan: Plan, images: Tensor, stride: int, tiling: Tiling = WHOLE) -> Tensor:
    """Spectra of images or kernels: (B, I, H, W) to (bins, 2B, F), first the real parts, then the imaginary ones.

    With tiles, B of the spectra counts those of all images.
    """
    from torchcaps.kernels.fourier_loops import transform_images

    pixels = images.detach().permute(0, 2, 3, 1).contiguous().numpy()
    spectrum, padded = allocate_spectrum(plan, len(images) * tiling.tiles**2, stride**2 * images.shape[1])
    tables = plan.side, stride, plan.cosines, plan.sines, plan.numbers, *tiling
    target = padded.numpy()
    on_threads(lambda first, last: transform_images(pixels, target, *tables, first, last), len(images))
    return spectrum


def from_spectrum(plan: Plan, padded: Tensor, images: Tensor, stride: int, tiling: Tiling = WHOLE) -> None:
    """Compute images (B, H, W, I) from their spectra as they were allocated. Tiles that overlap are added."""
    from torchcaps.kernels.fourier_loops import restore_images

    tables = plan.side, stride, plan.cosines, plan.sines, plan.numbers, *tiling
    source, target = padded.numpy(), images.numpy()
    on_threads(lambda first, last: restore_images(source, target, *tables, first, last), len(images))


def _from_spectrum(plan: Plan, padded: Tensor, shape: Sequence[int], stride: int) -> Tensor:
    """Images (B, I, H, W) in channels-last layout from their spectra as they were allocated."""
    images = padded.new_empty(shape[0], shape[2], shape[3], shape[1])
    from_spectrum(plan, padded, images, stride)
    return images.permute(0, 3, 1, 2)


def allocate_spectrum(plan: Plan, batch: int, features: int) -> tuple[Tensor, Tensor]:
    """Memory of a spectrum (bins, 2B, F), and the same memory as (bins, 2 * B * F + padding)."""
    count = 2 * batch * features
    padded = torch.empty(plan.bins, count + PADDING)
    return padded[:, :count].unflatten(1, (2 * batch, features)), padded


def _chunks(plan: Plan, weight: Tensor, stride: int) -> list[slice]:
    """Ranges of output channels whose kernel spectra have at most ``CHUNK`` numbers."""
    outputs, inputs = weight.shape[:2]
    step = max(1, min(outputs, CHUNK // (2 * plan.bins * stride**2 * inputs)))
    return [slice(start, min(start + step, outputs)) for start in range(0, outputs, step)]


def cached_spectrum(plan: Plan, weight: Tensor, stride: int) -> Tensor:
    """Spectrum of a weight that is not being trained, cached until the weight changes.

    A sample of the values detects optimizers that bypass autograd's version counter.
    """
    sample = weight.detach().permute(0, 2, 3, 1).reshape(-1)[:: max(1, weight.numel() // 4096)].clone()
    version = None if weight.is_inference() else weight._version
    made_from = (version, weight.data_ptr(), plan.side, stride)
    kept = _spectra.get(weight)
    if kept is None or kept[0] != made_from or not torch.equal(kept[1], sample):
        with torch.inference_mode(False):  # a cached inference tensor could not be saved for backward later
            kept = made_from, sample, to_spectrum(plan, weight, stride)
        _spectra[weight] = kept
    spectrum: Tensor = kept[2]
    return spectrum


@dataclass(frozen=True)
class Plan:
    """Tables of the Fourier transform of an N x N square, see ``fourier_loops``."""

    side: int
    bins: int
    cosines: Any  # (N/2 + 1) rows of 9 terms
    sines: Any
    numbers: Any  # (N/2 + 1, N), the number of each stored bin, otherwise -1


@cache
def dft_plan(side: int) -> Plan:
    """Build the tables for a side of at most 16; cached.

    >>> dft_plan(16).bins, dft_plan(10).bins  # at least half as many as pixels
    (130, 52)
    """
    half = side // 2
    angles = 2 * math.pi / side * np.outer(np.arange(half + 1), np.arange(LARGEST_SIDE // 2 + 2))
    cosines, sines = np.cos(angles[:, :-1]), np.sin(angles[:, 1:])
    cosines[:, half + 1 :] = 0
    sines[:, (side - 1) // 2 :] = 0
    numbers = np.full((half + 1, side), -1, np.int64)
    count = 0
    for k in range(half + 1):
        rows = half + 1 if k in (0, side / 2) else side  # of a real column, one half is the conjugate of the other
        numbers[k, :rows] = range(count, count + rows)
        count += rows
    return Plan(side, count, cosines.astype(np.float32).ravel(), sines.astype(np.float32).ravel(), numbers)
