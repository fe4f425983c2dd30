"""Convolution by small Fourier transforms: the results of ``F.conv2d`` with a fraction of the arithmetic.

A 9x9 convolution of stride 2 is the sum of four of stride 1 with 5x5 kernels or smaller, one for each phase of the
pixels. In the Fourier domain a multi-channel convolution is one matrix product per frequency, of images by (phases x
channels) with the kernels' spectrum. The transforms are matrix products too, so that only matrix products and one copy
of the images remain. The plain definition is ``torch.nn.functional.conv2d``.

The spectrum of a real n x n square has n * n independent real numbers. Self-conjugate bins are real; of each pair of
conjugate bins only one is stored, as real and imaginary part. ``c`` and ``s`` are the cosine and sine of a bin at a
pixel; the spectrum of x is (c x) - i (s x).

Letters: B images, I and O channels, n side of a phase, F = s * s * I, with s the stride.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.grad import conv2d_input, conv2d_weight
from torch.utils.weak import WeakIdKeyDictionary

Bin = tuple[int, int]
# Cached spectra of weights that are not being trained, valid until the weight changes.
_spectra: Any = WeakIdKeyDictionary()


def spectral_convolution(images: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Convolution without padding or bias: (B, I, H, H), (O, I, K, K) to (B, O, h, h)."""
    if not len(images):  # empty batch
        return F.conv2d(images, weight, stride=stride)
    # Inside a Function gradients are disabled, and needs_input_grad is True even under no_grad.
    learns = torch.is_grad_enabled() and weight.requires_grad
    result: Tensor = _SpectralConvolution.apply(images, weight, stride, learns)  # type: ignore[no-untyped-call]
    return result


class _SpectralConvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, stride: int, learns: bool) -> Tensor:
        transform = dft_plan(images.shape[2], weight.shape[2], stride)
        spectrum = kernel_spectrum(transform, weight) if learns else _cached_spectrum(transform, weight, stride)
        triple, alone = image_spectrum(transform, images, stride)
        batch, outputs, pairs = len(images), len(weight), transform.complex_bins
        product = images.new_empty(transform.side**2 * batch, outputs)
        whole, real = _parts(product, pairs, batch)
        # (Xr; Xi) Wr + (-Xi; Xr) Wi, and the real bins
        torch.bmm(triple[:, batch:], spectrum[0][:, 0].transpose(1, 2), out=whole)
        torch.baddbmm(whole, triple[:, : 2 * batch], spectrum[0][:, 1].transpose(1, 2), out=whole)
        torch.bmm(alone, spectrum[1].transpose(1, 2), out=real)
        if learns:
            ctx.save_for_backward(images, weight, *spectrum, triple, alone)
        else:
            ctx.save_for_backward(images, weight, *spectrum)
        ctx.transform, ctx.stride = transform, stride
        output = transform.output @ product.view(transform.side**2, -1)
        return output.view(transform.out, transform.out, batch, outputs).permute(2, 3, 0, 1)

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        images, weight, pair_kernels, real_kernels, *image = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        if torch.is_grad_enabled():  # create_graph=True
            di = conv2d_input(images.shape, weight, slopes, ctx.stride) if wanted[0] else None
            dw = conv2d_weight(images, weight.shape, slopes, ctx.stride) if wanted[1] else None
            return di, dw, None, None
        transform: Plan = ctx.transform
        batch, pairs = len(images), transform.complex_bins
        flat = transform.slope @ slopes.permute(2, 3, 0, 1).reshape(transform.out**2, -1)
        triple = flat[: 3 * pairs].view(pairs, 3 * batch, -1)  # real, imaginary, -real
        alone = flat[3 * pairs :].view(transform.real_bins, batch, -1)
        dimages = dweight = None
        if wanted[0]:
            product = flat.new_empty(transform.side**2 * batch, pair_kernels.shape[3])
            whole, real = _parts(product, pairs, batch)
            torch.bmm(triple[:, : 2 * batch], pair_kernels[:, 0], out=whole)
            torch.baddbmm(whole, triple[:, batch:], pair_kernels[:, 1], out=whole)
            torch.bmm(alone, real_kernels, out=real)
            dimages = _to_images(transform, product, images.shape, ctx.stride)
        if wanted[1]:
            dspectrum = torch.empty(transform.side**2, *pair_kernels.shape[2:])
            dpairs = dspectrum[: 2 * pairs].unflatten(0, (pairs, 2))
            right = triple[:, : 2 * batch].transpose(1, 2)
            torch.bmm(right, image[0][:, batch:], out=dpairs[:, 0])
            torch.bmm(right, image[0][:, : 2 * batch], out=dpairs[:, 1])
            torch.bmm(alone.transpose(1, 2), image[1], out=dspectrum[2 * pairs :])
            dweight = _to_weight(transform, dspectrum, weight, ctx.stride)
        return dimages, dweight, None, None


def kernel_spectrum(transform: Plan, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Spectra of all kernels: complex bins (pairs, 2, O, F) and real ones (real, O, F)."""
    outputs, inputs = weight.shape[:2]
    phases = len(transform.kernels)
    spectrum = weight.new_empty(transform.side**2, outputs, phases, inputs)
    taps = weight.permute(0, 2, 3, 1).contiguous()  # (O, K, K, I): no copy for channels-last weights
    for number, matrix in enumerate(transform.kernels):
        part = _phase(taps, number, phases).reshape(outputs, -1, inputs)  # (O, taps, I)
        torch.bmm(matrix.expand(outputs, -1, -1), part, out=spectrum[:, :, number].transpose(0, 1))
    flat, pairs = spectrum.view(transform.side**2, outputs, -1), transform.complex_bins
    return flat[: 2 * pairs].unflatten(0, (pairs, 2)), flat[2 * pairs :]


def image_spectrum(transform: Plan, images: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """Spectra of all images: (pairs, 3 B, F) with -imaginary, real, imaginary stacked, and (real, B, F)."""
    batch, inputs, size = images.shape[:3]
    missing = transform.side * stride - size
    padded = F.pad(images, (0, missing, 0, missing)) if missing else images
    phases = padded.unflatten(3, (transform.side, stride)).unflatten(2, (transform.side, stride))
    pixels = phases.permute(2, 4, 0, 3, 5, 1).reshape(transform.side**2, -1)  # (n n, B s s I)
    flat, pairs = transform.image @ pixels, transform.complex_bins
    width = stride**2 * inputs
    return flat[: 3 * pairs].view(pairs, 3 * batch, width), flat[3 * pairs :].view(transform.real_bins, batch, width)


def _to_images(transform: Plan, product: Tensor, shape: torch.Size, stride: int) -> Tensor:
    batch, inputs, size = shape[:3]
    pixels = transform.image_back @ product.view(transform.side**2, -1)
    side = transform.side
    phases = pixels.view(side, side, batch, stride, stride, inputs).permute(2, 0, 3, 1, 4, 5)
    whole = phases.reshape(batch, side * stride, side * stride, inputs).permute(0, 3, 1, 2)  # channels last
    return whole[:, :, :size, :size]


def _to_weight(transform: Plan, dspectrum: Tensor, weight: Tensor, stride: int) -> Tensor:
    outputs, inputs, kernel = weight.shape[:3]
    taps = weight.new_empty(outputs, kernel, kernel, inputs)
    phases = stride**2
    spectrum = dspectrum.view(transform.side**2, outputs, phases, inputs).transpose(0, 1)  # (O, n n, s s, I)
    for number, matrix in enumerate(transform.kernels):
        target = _phase(taps, number, phases)
        found = torch.bmm(matrix.T.expand(outputs, -1, -1), spectrum[:, :, number])
        target.copy_(found.view_as(target))
    return taps.permute(0, 3, 1, 2)


def _phase(taps: Tensor, number: int, phases: int) -> Tensor:
    """The taps (O, K', K', I) of one phase."""
    stride = round(phases**0.5)
    top, left = divmod(number, stride)
    return taps[:, top::stride, left::stride]


def _parts(product: Tensor, pairs: int, batch: int) -> tuple[Tensor, Tensor]:
    """A (n n B, channels) spectrum as its complex bins (pairs, 2 B, channels) and its real ones (real, B, channels)."""
    split = 2 * pairs * batch
    return product[:split].unflatten(0, (pairs, 2 * batch)), product[split:].unflatten(0, (-1, batch))


def _cached_spectrum(transform: Plan, weight: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """Spectrum of a weight that is not being trained, cached until the weight changes.

    A sample of the values detects optimizers that bypass autograd's version counter.
    """
    sample = weight.detach().permute(0, 2, 3, 1).reshape(-1)[:: max(1, weight.numel() // 4096)].clone()
    version = None if weight.is_inference() else weight._version
    made_from = (version, weight.data_ptr(), transform.side, stride)
    kept = _spectra.get(weight)
    if kept is None or kept[0] != made_from or not torch.equal(kept[1], sample):
        with torch.inference_mode(False):  # a cached inference tensor could not be saved for backward later
            kept = made_from, sample, kernel_spectrum(transform, weight.detach())
        _spectra[weight] = kept
    spectrum: tuple[Tensor, Tensor] = kept[2]
    return spectrum


def bins(side: int) -> tuple[list[Bin], list[Bin]]:
    """Return the complex bins, one of each conjugate pair, and the real bins.

    >>> [len(each) for each in bins(10)]
    [48, 4]
    """
    pairs: list[Bin] = []
    alone: list[Bin] = []
    seen: set[Bin] = set()
    for bin_ in [(row, column) for row in range(side) for column in range(side)]:
        mirrored = (-bin_[0] % side, -bin_[1] % side)
        if bin_ not in seen:
            (alone if mirrored == bin_ else pairs).append(bin_)
            seen |= {bin_, mirrored}
    return pairs, alone


def cos_sin(side: int, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every stored bin, complex bins first, at the top left pixels: (bins, height * width)."""
    pairs, alone = bins(side)
    frequencies = torch.tensor(pairs + alone, dtype=torch.float64)
    rows, columns = (torch.arange(length, dtype=torch.float64) for length in (height, width))
    turns = frequencies[:, :1, None] * rows[:, None] + frequencies[:, 1:, None] * columns  # (bins, height, width)
    angles = (turns * (2 * math.pi / side)).flatten(1)
    return angles.cos(), angles.sin()


@dataclass(frozen=True)
class Plan:
    """The matrices of one convolution: a (size x size) image, a (kernel x kernel) window, a stride.

    The image is split into stride x stride phases of side n, each convolved with its part of the kernel at stride 1.
    ``image`` has three rows for each complex bin, -imaginary, real, imaginary, so that both [real; imaginary] and
    [-imaginary; real] are contiguous; ``slope`` has real, imaginary, -real for the gradient of the output. The others
    have two rows for a complex bin and one for a real bin, n * n in total.
    """

    side: int
    out: int
    complex_bins: int
    image: Tensor  # (3 complex + real, n * n)
    image_back: Tensor  # (n * n, n * n)
    kernels: tuple[Tensor, ...]  # for each phase (n * n, taps)
    output: Tensor  # (out * out, n * n)
    slope: Tensor  # (3 complex + real, out * out)

    @property
    def real_bins(self) -> int:
        return self.side**2 - 2 * self.complex_bins


@cache
def dft_plan(size: int, kernel: int, stride: int) -> Plan:
    """Build the matrices of a convolution without padding; cached."""
    side, out = -(-size // stride), (size - kernel) // stride + 1
    count = len(bins(side)[0])
    c, s = cos_sin(side, side, side)
    kernels = []
    for top in range(stride):
        for left in range(stride):
            taps = [len(range(first, kernel, stride)) for first in (top, left)]
            kernels.append(_rows(count, cos_sin(side, taps[0], taps[1]), (1, 2)))
    # Inverse transform: a complex bin also represents its conjugate.
    cos, sin = cos_sin(side, out, out)
    twice = torch.ones(len(cos), 1, dtype=torch.float64)
    twice[:count] = 2
    cos, sin = (twice * each / side**2 for each in (cos, sin))
    return Plan(
        side=side,
        out=out,
        complex_bins=count,
        image=_rows(count, (c, s), (2, 1, -2)),
        image_back=_rows(count, (c, s), (1, -2)).T.contiguous(),
        kernels=tuple(kernels),
        output=_rows(count, (cos, sin), (1, -2)).T.contiguous(),
        slope=_rows(count, (cos, sin), (1, -2, -1)),
    )


def _rows(count: int, parts: tuple[Tensor, Tensor], order: tuple[int, ...]) -> Tensor:
    """Rows of the complex bins in an order (1 for cosine, 2 for sine, with its sign), then cosines of the real bins."""
    signed = [parts[abs(which) - 1][:count] * (1 if which > 0 else -1) for which in order]
    return torch.cat([torch.stack(signed, 1).flatten(0, 1), parts[0][count:]]).float()
