r"""Winograd's convolution with 3x3 kernels: the results of ``F.conv2d`` with 4 times fewer multiplications.

Lavin, Gray: Fast Algorithms for Convolutional Neural Networks, 2016, https://arxiv.org/abs/1509.09308, section 4.1.

.. math:: Y = A^T [(G g G^T) \odot (B^T d B)] A

Here d are 6x6 pixels, g is a kernel and Y are 4x4 outputs. The points of the transform are 0, ±√½, ±√2 and infinity;
with the paper's 0, ±1, ±2 and infinity, the largest rounding error is five times as large. The gradient of the pixels
is the same convolution with rotated kernels, and that of a kernel is G^T [(A dY A^T) ⊙ (B^T d B)] G. The transforms are
the loops in ``winograd_loops``. The plain definition is ``torch.nn.functional.conv2d``; a test compares the two.

Letters: B images, C and C' channels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.kernels.dispatch import on_threads

LANES = 16  # channels that are computed at once
# A row per point p: (1, p, p * p) divided by the product of its distances to the other points.
_NEAR, _FAR = (torch.tensor([[1.0, p, p * p], [1.0, -p, p * p]]) for p in (0.5**0.5, 2**0.5))
_G = torch.cat([torch.tensor([[1.0, 0.0, 0.0]]), _NEAR / -1.5, _FAR / 6, torch.tensor([[0.0, 0.0, 1.0]])])  # (6, 3)
_TRANSFORM = torch.kron(_G, _G)  # (36, 9): both sides of a kernel at once


def winograd_convolution(maps: Tensor, weight: Tensor, bias: Tensor | None, padding: int = 1) -> Tensor:
    """Convolution with stride 1: (B, C, H, W), (C', C, 3, 3) to (B, C', H', W'), H' = H + 2 padding - 2; channels last.

    C and C' must be multiples of 16, and the padding 0, 1 or 2.
    """
    result: Tensor = _Winograd.apply(maps, weight, bias, padding)  # type: ignore[no-untyped-call]
    return result


class _Winograd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, maps: Tensor, weight: Tensor, bias: Tensor | None, padding: int) -> Tensor:
        ctx.save_for_backward(maps, weight, bias)
        ctx.padding = padding
        return _convolve(maps, weight.detach(), bias, padding)

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        maps, weight, bias = ctx.saved_tensors
        wanted, padding = ctx.needs_input_grad[:3], ctx.padding
        if torch.is_grad_enabled():  # create_graph=True
            inputs = [each for each, needed in zip((maps, weight, bias), wanted, strict=True) if needed]
            plain = F.conv2d(maps, weight, bias, 1, padding)
            found = iter(torch.autograd.grad(plain, inputs, slopes, create_graph=True))
            return *(next(found) if needed else None for needed in wanted), None
        dmaps = _convolve(slopes, weight.flip(2, 3).transpose(0, 1), None, 2 - padding) if wanted[0] else None
        dweight = _weight_gradient(maps, slopes, padding) if wanted[1] else None
        return dmaps, dweight, slopes.sum((0, 2, 3)) if wanted[2] else None, None


def _convolve(maps: Tensor, weight: Tensor, bias: Tensor | None, padding: int) -> Tensor:
    from torchcaps.kernels.winograd_loops import convolve

    taps = weight.permute(2, 3, 1, 0).reshape(9, -1)  # (9, C * C')
    kernels = (_TRANSFORM @ taps).view(len(_TRANSFORM), maps.shape[1], -1).numpy()  # (36, C, C')
    offset = weight.new_zeros(len(weight)) if bias is None else bias.detach()
    source, added = _lanes(maps), offset.contiguous().view(-1, LANES).numpy()
    height, width = (side + 2 * padding - 2 for side in maps.shape[2:])
    result = maps.new_empty(len(maps), height, width, len(added), LANES)
    target = result.numpy()

    def some_images(first: int, last: int) -> None:
        convolve(source, padding, kernels, added, target, *_buffers(source, target), first, last)

    on_threads(some_images, len(maps))
    return result.flatten(3).permute(0, 3, 1, 2)


def _weight_gradient(maps: Tensor, slopes: Tensor, padding: int) -> Tensor:
    from torchcaps.kernels.winograd_loops import add_kernel_gradients

    source, gradient = _lanes(maps), _lanes(slopes)

    def some_images(first: int, last: int) -> Tensor:
        result = maps.new_zeros(len(_TRANSFORM), maps.shape[1], slopes.shape[1])
        add_kernel_gradients(source, padding, gradient, result.numpy(), *_buffers(source, gradient), first, last)
        return result

    total = torch.stack(on_threads(some_images, len(maps))).sum(0)  # (36, C, C')
    taps = (_TRANSFORM.T @ total.flatten(1)).view(3, 3, *total.shape[1:])
    return taps.permute(3, 2, 0, 1)


def _lanes(maps: Tensor) -> Any:
    """Maps (B, C, H, W) as an array (B, H, W, C/16, 16): a view if they are channels-last."""
    return maps.detach().permute(0, 2, 3, 1).contiguous().unflatten(3, (-1, LANES)).numpy()


def _buffers(maps: Any, result: Any) -> tuple[Any, ...]:
    """Memory for half a transform, for a padded image, and for the tiles before and after the product."""
    from torchcaps.kernels.winograd_loops import POINTS, TILES

    (height, width, outputs), inputs = result.shape[1:4], maps.shape[3]
    # One row more than tiles: at a distance of a power of two, the numbers of a tile would share cache sets.
    shapes = (
        (6, 6),
        (height + -height % 4 + 2, width + -width % 4 + 2, inputs),
        (POINTS, TILES + 1, inputs),
        (POINTS, TILES + 1, outputs),
    )
    return tuple(np.zeros((*shape, LANES), np.float32) for shape in shapes)
