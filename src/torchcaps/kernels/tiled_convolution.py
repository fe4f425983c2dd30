"""Fourier convolution of images that are too large for one small transform: overlapping tiles.

Each phase of the pixels (see ``convolution``) is cut into squares that overlap by the kernel's side less one, so that
every square gives ``step`` x ``step`` pixels of the output (overlap-save). Backward, a square of the output's gradient
touches a whole square of the image, and those are added where they overlap. The tiles of an image are images of their
own for the matrix products. Images are processed in chunks, whose spectra are discarded: backward computes them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight

from torchcaps.kernels.convolution import (
    LARGEST_SIDE,
    ROWS,
    Plan,
    Tiling,
    allocate_spectrum,
    cached_spectrum,
    complex_blocks,
    dft_plan,
    from_spectrum,
    multiply_spectra,
    multiply_spectra_conjugate,
    to_spectrum,
)

CHUNKS = 2**19, 2**21  # fewest and most numbers of an image spectrum that is computed at once
LARGEST_SPECTRUM = 2**22  # numbers of a kernel spectrum that is held together with its gradient


def tiled_convolution(images: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Convolution without padding or bias: (B, I, H, H), (O, I, K, K) to (B, O, h, h), channels last."""
    learns = torch.is_grad_enabled() and weight.requires_grad
    result: Tensor = _TiledConvolution.apply(images, weight, stride, learns)  # type: ignore[no-untyped-call]
    return result


class Tiles(NamedTuple):
    """The transform of a tile, and where tiles of the image and of the output lie."""

    plan: Plan
    image: Tiling
    output: Tiling


@cache
def plan_tiles(size: int, kernel: int, stride: int) -> Tiles:
    """Choose the fewest tiles for images of this side, and then the smallest.

    >>> plan_tiles(32, 9, 1).output  # 24 pixels of output
    Tiling(tiles=3, step=8, most=8)
    """
    output, reach = (size - kernel) // stride + 1, -(-kernel // stride)
    tiles = -(-output // (LARGEST_SIDE - reach + 1))
    step = -(-output // tiles)
    side = step + reach - 1
    return Tiles(dft_plan(side), Tiling(tiles, step, side), Tiling(tiles, step, step))


class _TiledConvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor, stride: int, learns: bool) -> Tensor:
        outputs, _, kernel, _ = weight.shape
        tiles = plan_tiles(images.shape[2], kernel, stride)
        plan = tiles.plan
        kernels = to_spectrum(plan, weight, stride) if learns else cached_spectrum(plan, weight, stride)
        side = (images.shape[2] - kernel) // stride + 1
        result = images.new_empty(len(images), side, side, outputs)
        for chunk in _chunks(images, outputs, stride, tiles):
            spectrum = to_spectrum(plan, images[chunk], stride, tiles.image)  # (bins, 2B, F), B tiles
            count = spectrum.shape[1] // 2
            product, padded = allocate_spectrum(plan, count, outputs)
            multiply_spectra_conjugate(spectrum, kernels, product.unflatten(1, (2, count)))
            from_spectrum(plan, padded, result[chunk], 1, tiles.output)
        ctx.save_for_backward(images, weight)
        ctx.stride = stride
        return result.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        images, weight = ctx.saved_tensors
        stride, wanted = ctx.stride, ctx.needs_input_grad
        if torch.is_grad_enabled():  # create_graph=True
            di = conv2d_input(images.shape, weight, slopes, stride) if wanted[0] else None
            dw = conv2d_weight(images, weight.shape, slopes, stride) if wanted[1] else None
            return di, dw, None, None
        (outputs, inputs, kernel, _), size = weight.shape, images.shape[2]
        if 2 * plan_tiles(size, kernel, stride).plan.bins * stride**2 * inputs * outputs <= LARGEST_SPECTRUM:
            return *_gradients(images, weight, slopes, stride, wanted), None, None
        # The spectra of large kernels and of their gradient are not held at the same time.
        di, _ = _gradients(images, weight, slopes, stride, (wanted[0], False))
        _, dw = _gradients(images, weight, slopes, stride, (False, wanted[1]))
        return di, dw, None, None


def _gradients(
    images: Tensor, weight: Tensor, slopes: Tensor, stride: int, wanted: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the images and of the kernels, where wanted."""
    (outputs, inputs, kernel, _), size = weight.shape, images.shape[2]
    features = stride**2 * inputs
    tiles = plan_tiles(size, kernel, stride)
    plan = tiles.plan
    kernels = to_spectrum(plan, weight, stride) if wanted[0] else None
    dimages = images.new_zeros(len(images), size, size, inputs) if wanted[0] else None
    dkernels, flat = allocate_spectrum(plan, outputs, features) if wanted[1] else (None, None)
    for number, chunk in enumerate(_chunks(images, outputs, stride, tiles)):
        slope = to_spectrum(plan, slopes[chunk], 1, tiles.output)
        count = slope.shape[1] // 2
        blocks = complex_blocks(slope[:, :count], slope[:, count:])  # (bins, 2B, 2O)
        del slope
        if dimages is not None and kernels is not None:
            dproduct, padded = allocate_spectrum(plan, count, features)
            multiply_spectra(blocks, kernels, dproduct)
            from_spectrum(plan, padded, dimages[chunk], stride, tiles.image)
            del dproduct, padded
        if dkernels is not None:
            spectrum = to_spectrum(plan, images[chunk], stride, tiles.image)
            multiply_spectra(blocks.transpose(1, 2), spectrum, dkernels, added=number > 0)
    dweight = None
    if flat is not None:
        dweight = weight.new_empty(outputs, kernel, kernel, inputs)
        from_spectrum(plan, flat, dweight, stride)
    di, dw = (None if each is None else each.permute(0, 3, 1, 2) for each in (dimages, dweight))
    return di, dw


def _chunks(images: Tensor, outputs: int, stride: int, tiles: Tiles) -> list[slice]:
    """Ranges of images whose spectra have half as many numbers as those of the kernels, within ``CHUNKS``."""
    fewest, most = CHUNKS
    features = 2 * tiles.plan.bins * stride**2 * images.shape[1]
    step = max(1, max(fewest, min(most, features * outputs // 2)) // (features * tiles.image.tiles**2))
    step -= step % ROWS if step > ROWS else 0  # our matrix products need a multiple
    return [slice(start, min(start + step, len(images))) for start in range(0, len(images), step)]
