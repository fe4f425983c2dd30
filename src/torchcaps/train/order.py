"""Which images come when, and which random numbers: pure functions, so that a resumed run repeats nothing
and misses nothing. Nothing here has a state that could be lost."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import torch
from torch import Generator, Tensor


def derived_seed(*parts: object) -> int:
    """A seed that depends on all parts and on nothing else.

    >>> derived_seed(0, "augment", 12) == derived_seed(0, "augment", 12)
    True
    """
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1  # torch wants it below 2**63


@lru_cache(maxsize=2)
def epoch_order(count: int, seed: int, epoch: int) -> Tensor:
    """The order of all images in one epoch."""
    return torch.randperm(count, generator=Generator().manual_seed(derived_seed(seed, "order", epoch)))


def batch_indices(count: int, batch_size: int, seed: int, step: int) -> Tensor:
    """The images of one step. Every epoch sees every image once; its last batch may be smaller."""
    epoch, position = divmod(step, steps_per_epoch(count, batch_size))
    return epoch_order(count, seed, epoch)[position * batch_size : (position + 1) * batch_size]


def steps_per_epoch(count: int, batch_size: int) -> int:
    """Batches in one epoch, the smaller last one included."""
    return -(-count // batch_size)


def step_generator(seed: int, step: int, rank: int) -> Generator:
    """Random numbers for the augmentation of one step."""
    return Generator().manual_seed(derived_seed(seed, "augment", step, rank))


def seed_step(seed: int, step: int, rank: int) -> None:
    """Set the global random state, which dropout and the like draw from, for one step."""
    torch.manual_seed(derived_seed(seed, "step", step, rank))
