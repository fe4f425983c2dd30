"""The discrete Fourier transform of small squares as real matrices, so that a transform is one matrix product.

The spectrum of a real n x n square has n * n independent real numbers. Self-conjugate bins are real; of each pair of
conjugate bins only one is stored, as real and imaginary part. ``c`` and ``s`` below are the cosine and sine of a bin at
a pixel; the spectrum of x is (c x) - i (s x).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

Bin = tuple[int, int]


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
