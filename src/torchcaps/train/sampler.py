"""Which images come when, and which random numbers: pure functions, so that a resumed run repeats nothing
and misses nothing. Nothing here has a state that could be lost."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Generator, Tensor

LARGEST_LIST = 1 << 22  # images


def derived_seed(*parts: object) -> int:
    """A seed that depends on all parts and on nothing else.

    >>> derived_seed(0, "augment", 12) == derived_seed(0, "augment", 12)
    True
    """
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1  # torch wants it below 2**63


@lru_cache(maxsize=2)
def epoch_permutation(count: int, seed: int, epoch: int) -> Tensor:
    """The order of all images in one epoch."""
    return torch.randperm(count, generator=Generator().manual_seed(derived_seed(seed, "order", epoch)))


def batch_indices(count: int, batch_size: int, seed: int, step: int) -> Tensor:
    """The images of one step. Every epoch sees every image once; its last batch may be smaller."""
    epoch, position = divmod(step, steps_per_epoch(count, batch_size))
    first, last = position * batch_size, min((position + 1) * batch_size, count)
    if count <= LARGEST_LIST:
        return epoch_permutation(count, seed, epoch)[first:last]
    # An endless set: a full list of its order would not fit, but k -> (a k + b) mod n is an order too, when a and
    # n have no common divisor, and any part of it is had at once.
    factor = next(a for a in range(derived_seed(seed, "factor", epoch) % count, 2 * count) if math.gcd(a, count) == 1)
    return (torch.arange(first, last) * (factor % count) + derived_seed(seed, "offset", epoch) % count) % count


def steps_per_epoch(count: int, batch_size: int) -> int:
    """Batches in one epoch, the smaller last one included."""
    return -(-count // batch_size)


@dataclass(frozen=True)
class Share:
    """What one of several processes computes of a batch: images ``first`` to ``last``, the last one not included.

    ``copies`` is how many processes compute the same images, so each of them counts for one part in so many.
    """

    first: int
    last: int
    copies: int

    @property
    def part(self) -> slice:
        return slice(self.first, self.last)

    @property
    def counted(self) -> float:
        """How many images this share stands for: over all processes, the batch."""
        return (self.last - self.first) / self.copies


def share_of(count: int, rank: int, ranks: int) -> Share:
    """The share of one process in a batch: neighbours, as many as the others have or one more.

    A batch with fewer images than processes is computed as a whole by each of them: no layer meets an empty batch.

    >>> [share_of(5, rank, 2).part for rank in range(2)], share_of(1, 0, 2).counted
    ([slice(0, 3, None), slice(3, 5, None)], 0.5)
    """
    if count < ranks:
        return Share(0, count, copies=ranks)
    size, more = divmod(count, ranks)
    first = rank * size + min(rank, more)
    return Share(first, first + size + (rank < more), copies=1)


def step_generator(seed: int, step: int) -> Generator:
    """Random numbers for the augmentation of one step, the same in every process."""
    return Generator().manual_seed(derived_seed(seed, "augment", step, 0))


def seed_step(seed: int, step: int, rank: int) -> None:
    """Set the global random state, which dropout and the like draw from, for one step and one process."""
    torch.manual_seed(derived_seed(seed, "step", step, rank))
