"""How fast datasets give their images, in one process on one core."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from torchcaps.data.affnist import change_digits
from torchcaps.data.base import ImageSet, datasets
from torchcaps.data.cifar10 import open_cifar
from torchcaps.data.inventory import HERE, take_stock
from torchcaps.data.mnist import open_mnist
from torchcaps.data.multimnist import open_multimnist
from torchcaps.data.transforms import Augmentation
from torchcaps.progress import progress_bar

BATCH = 128
# Images per second that the project asks for, and seconds to open a set that is here.
TARGETS = {"mnist with shift": 60_000, "affnist generation": 10_000, "multimnist with both targets": 20_000}
OPEN_TARGET = 1.0


def best_rate(work: Callable[[], int], *, rounds: int = 5, seconds: float = 0.5) -> float:
    """Images per second in the best of some rounds: other programs on the machine can only slow a round down."""
    work()
    rates = []
    for _ in range(rounds):
        start, images = time.perf_counter(), 0
        while (spent := time.perf_counter() - start) < seconds:
            images += work()
        rates.append(images / spent)
    return max(rates)


def measure() -> list[dict[str, object]]:
    """One row for each measurement, with its target."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _measure_on_one_core()
    finally:
        torch.set_num_threads(threads)


def _measure_on_one_core() -> list[dict[str, object]]:
    digits, pairs = open_mnist("train"), open_multimnist("train")
    some = digits.where(torch.arange(2000))
    generator, shift = torch.Generator().manual_seed(0), Augmentation("shift=2")

    def positions(images: ImageSet) -> torch.Tensor:
        return torch.randint(len(images), (BATCH,), generator=generator)

    works: dict[str, Callable[[], int]] = {
        "mnist with shift": lambda: len(shift(digits.batch(positions(digits)).images, generator)),
        "affnist generation": lambda: len(change_digits(some, 0)),
        "multimnist with both targets": lambda: len(pairs.batch(positions(pairs)).images),
    }
    rows: list[dict[str, object]] = []
    with progress_bar("measuring", len(works) + 1) as advance:
        for name, work in works.items():
            rate = best_rate(work)
            rows.append({"what": name, "unit": "images/s", "measured": round(rate), "target": TARGETS[name]})
            advance(1)
        if take_stock(datasets.get("cifar-10")).state == HERE:
            rows.append(
                {
                    "what": "opening cifar-10 that is here",
                    "unit": "seconds",
                    "measured": round(min(seconds_to_open("train") for _ in range(5)), 3),
                    "target": OPEN_TARGET,
                }
            )
        advance(1)
    return rows


def seconds_to_open(split: str) -> float:
    """How long CIFAR-10 takes from its files to memory, verified."""
    start = time.perf_counter()
    open_cifar(split)
    return time.perf_counter() - start
