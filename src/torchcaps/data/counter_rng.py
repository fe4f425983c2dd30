"""Counter-based random numbers: number k is a pure function of (seed, stream, k).

Unlike a stateful generator, it gives the same numbers in any order and on any machine. This makes a generated dataset
random-access, resumable and shardable.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Constants of SplitMix64 (Steele, Lea, Flood 2014, https://doi.org/10.1145/2660193.2660195).
STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def signed(value: int) -> int:
    """Reinterpret an unsigned 64-bit integer as a signed one (torch's int64)."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def shift_right(bits: Tensor, by: int) -> Tensor:
    """Logical right shift; torch's ``>>`` on int64 is arithmetic."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


def mix(bits: Tensor) -> Tensor:
    """Finalizer of SplitMix64: every output bit depends on every input bit."""
    bits = (bits ^ shift_right(bits, 30)) * signed(FIRST)
    bits = (bits ^ shift_right(bits, 27)) * signed(SECOND)
    return bits ^ shift_right(bits, 31)


def uniform(seed: int, stream: int, positions: Tensor) -> Tensor:
    """Return float64 numbers in [0, 1), one per position; streams are independent of each other.

    >>> uniform(0, 1, torch.tensor([7, 8, 7])).tolist()[0] == uniform(0, 1, torch.tensor([7])).item()
    True
    """
    start = mix(torch.tensor(signed(seed + 1)) * signed(STEP))  # consecutive seeds give unrelated states
    start = mix(start + signed((stream + 1) * STEP))
    bits = mix(start + (positions.to(torch.int64) + 1) * signed(STEP))
    return shift_right(bits, 11).to(torch.float64) * 2.0**-53


def integers(seed: int, stream: int, positions: Tensor, below: int | Tensor) -> Tensor:
    """Return integers in [0, below), one per position; ``below`` is at most 2^53."""
    return (uniform(seed, stream, positions) * below).to(torch.int64)
