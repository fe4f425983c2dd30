"""The order of the images and the seeds of every step, as pure functions of the seed and the step.

Nothing here has state, so a resumed run continues with exactly the images and random numbers that come next.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Generator, Tensor

from torchcaps.data import ImageSet, Subset, TensorImages
from torchcaps.errors import TorchcapsError

MOST_PERMUTED = 1 << 22  # images


def derived_seed(*parts: object) -> int:
    """Derive a seed from all parts.

    >>> derived_seed(0, "augment", 12) == derived_seed(0, "augment", 12)
    True
    """
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1  # torch takes seeds below 2**63


@lru_cache(maxsize=2)
def epoch_permutation(count: int, seed: int, epoch: int) -> Tensor:
    """Return the order of all images in one epoch."""
    return torch.randperm(count, generator=Generator().manual_seed(derived_seed(seed, "order", epoch)))


def batch_indices(count: int, batch_size: int, seed: int, step: int) -> Tensor:
    """Return the images of one step. Every epoch visits every image once; its last batch may be smaller."""
    epoch, position = divmod(step, steps_per_epoch(count, batch_size))
    first, last = position * batch_size, min((position + 1) * batch_size, count)
    if count <= MOST_PERMUTED:
        return epoch_permutation(count, seed, epoch)[first:last]
    # The permutation of a huge generated set does not fit into memory, but k -> (a k + b) mod n is a permutation too
    # if a and n are coprime, and any part of it can be computed directly.
    factor = next(a for a in range(derived_seed(seed, "factor", epoch) % count, 2 * count) if math.gcd(a, count) == 1)
    return (torch.arange(first, last) * (factor % count) + derived_seed(seed, "offset", epoch) % count) % count


def all_labels(images: ImageSet) -> Tensor:
    """Return the labels of all images, (N,); an error if images have several labels."""
    if isinstance(images, TensorImages):
        found = images.labels
    elif isinstance(images, Subset):
        found = all_labels(images.whole)[images.indices]
    else:
        found = torch.cat([images.batch(part).labels for part in torch.arange(len(images)).split(1000)])
    if found.ndim != 1:
        raise TorchcapsError(f"balancing classes needs one label per image, got {found.shape[1]}: leave out --balance")
    return found


def class_weights(labels: Tensor, classes: int) -> Tensor:
    """Return a weight for each class, (classes,): inverse to its number of images, 1 on average over all images.

    >>> class_weights(torch.tensor([0, 0, 0, 1]), 2)
    tensor([0.6667, 2.0000])
    """
    counts = torch.bincount(labels, minlength=classes)
    return len(labels) / (int((counts > 0).sum()) * counts.clamp_min(1).float())


class BalancedOrder:
    """The order of the images if every class is shown equally often: images of small classes are repeated.

    An epoch has as many images as there are in the training set. The order is a pure function of seed and epoch.

    Args:
        labels: of the training images, (N,).
        seed: of the run.
    """

    def __init__(self, labels: Tensor, seed: int) -> None:
        self.count, self.seed = len(labels), seed
        self.members = [(labels == label).nonzero().flatten() for label in labels.unique().tolist()]
        self._epoch = lru_cache(maxsize=2)(self._order)

    def batch(self, batch_size: int, step: int) -> Tensor:
        """Return the images of one step; the last batch of an epoch may be smaller."""
        epoch, position = divmod(step, steps_per_epoch(self.count, batch_size))
        return self._epoch(epoch)[position * batch_size : (position + 1) * batch_size]

    def _order(self, epoch: int) -> Tensor:
        generator = Generator().manual_seed(derived_seed(self.seed, "balanced", epoch))
        share = -(-self.count // len(self.members))
        drawn = []
        for own in self.members:
            passes = [own[torch.randperm(len(own), generator=generator)] for _ in range(-(-share // len(own)))]
            drawn.append(torch.cat(passes)[:share])
        every = torch.cat(drawn)
        return every[torch.randperm(len(every), generator=generator)[: self.count]]


def steps_per_epoch(count: int, batch_size: int) -> int:
    """Return the number of batches in one epoch, including a smaller last one."""
    return -(-count // batch_size)


@dataclass(frozen=True)
class BatchShard:
    """The part of a batch that one process computes: images ``first`` to ``last``, exclusive.

    ``copies`` is the number of processes that compute the same images.
    """

    first: int
    last: int
    copies: int

    @property
    def part(self) -> slice:
        return slice(self.first, self.last)

    @property
    def counted(self) -> float:
        """The number of images divided by ``copies``; the sum over all processes is the size of the batch."""
        return (self.last - self.first) / self.copies


def shard_of(count: int, rank: int, world_size: int) -> BatchShard:
    """Return the contiguous part of a batch that one process computes; sizes differ by one image at most.

    If there are fewer images than processes, each process computes all of them: no layer gets an empty batch.

    >>> [shard_of(5, rank, 2).part for rank in range(2)], shard_of(1, 0, 2).counted
    ([slice(0, 3, None), slice(3, 5, None)], 0.5)
    """
    if count < world_size:
        return BatchShard(0, count, copies=world_size)
    size, more = divmod(count, world_size)
    first = rank * size + min(rank, more)
    return BatchShard(first, first + size + (rank < more), copies=1)


def step_generator(seed: int, step: int) -> Generator:
    """Return the generator for the augmentation of one step, the same in every process."""
    return Generator().manual_seed(derived_seed(seed, "augment", step, 0))


def seed_step(seed: int, step: int, rank: int) -> None:
    """Seed torch's global generator, which dropout uses, for one step and one process."""
    torch.manual_seed(derived_seed(seed, "step", step, rank))
