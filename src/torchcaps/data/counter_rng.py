"""Random numbers by position: number k is a pure function of (seed, stream, k).

A generator must be run through from its start; these can be asked for anywhere, in any order, on any machine, and
always agree. That is what makes a generated dataset random-access, resumable and shardable.
"""

from __future__ import annotations

import torch
from torch import Tensor

# The constants of SplitMix64 (Steele, Lea, Flood 2014, https://doi.org/10.1145/2660193.2660195).
STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def signed(value: int) -> int:
    """The 64-bit number whose bits are those of ``value``, as torch's int64 counts it."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def shift_right(bits: Tensor, by: int) -> Tensor:
    """Shift with zeros coming in; torch's own shift of int64 repeats the sign."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


def mix(bits: Tensor) -> Tensor:
    """SplitMix64's finishing function: every bit of the result depends on every bit given."""
    bits = (bits ^ shift_right(bits, 30)) * signed(FIRST)
    bits = (bits ^ shift_right(bits, 27)) * signed(SECOND)
    return bits ^ shift_right(bits, 31)


def uniform(seed: int, stream: int, positions: Tensor) -> Tensor:
    """Float64 numbers in [0, 1), one for each position; streams are independent of each other.

    >>> uniform(0, 1, torch.tensor([7, 8, 7])).tolist()[0] == uniform(0, 1, torch.tensor([7])).item()
    True
    """
    start = mix(torch.tensor(signed(seed + 1)) * signed(STEP))  # far apart for neighbouring seeds
    start = mix(start + signed((stream + 1) * STEP))
    bits = mix(start + (positions.to(torch.int64) + 1) * signed(STEP))
    return shift_right(bits, 11).to(torch.float64) * 2.0**-53


def integers(seed: int, stream: int, positions: Tensor, below: int | Tensor) -> Tensor:
    """Whole numbers from 0 up to, not including, ``below`` (at most 2^53), one for each position."""
    return (uniform(seed, stream, positions) * below).to(torch.int64)
