"""Benchmark the throughput of datasets in one process on one core.

Each figure is given per second of CPU time, which is independent of other load on the machine, and of wall-clock time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from torchcaps.data.base import ImageSet
from torchcaps.data.datasets.affnist import change_digits
from torchcaps.data.datasets.cifar10 import open_cifar
from torchcaps.data.datasets.mnist import open_mnist
from torchcaps.data.datasets.multimnist import open_multimnist
from torchcaps.data.registry import HERE, dataset_status, datasets
from torchcaps.data.transforms import Augmentation
from torchcaps.progress import progress_bar

BATCH = 128
# Target images per second, and target seconds to open a dataset whose files are present.
TARGETS = {"mnist with shift": 60_000, "affnist generation": 10_000, "multimnist with both targets": 20_000}
OPEN_TARGET = 1.0


def best_of(work: Callable[[], int], *, rounds: int = 5, seconds: float = 0.5) -> tuple[float, float]:
    """Return the CPU seconds and the wall-clock seconds per image, each the best of several rounds."""
    work()
    spent = []
    for _ in range(rounds):
        clock, core, images = time.perf_counter(), time.process_time(), 0
        while not images or time.process_time() - core < seconds:
            images += work()
        spent.append(((time.process_time() - core) / images, (time.perf_counter() - clock) / images))
    return min(core for core, _ in spent), min(clock for _, clock in spent)


def measure_datasets() -> list[dict[str, object]]:
    """Run all measurements; return one row each, with its target."""
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
            core, clock = best_of(work)
            rows.append(row(name, "images/s", round(1 / core), round(1 / clock), TARGETS[name]))
            advance(1)
        if dataset_status(datasets.get("cifar-10")).state == HERE:
            core, clock = best_of(open_once, seconds=0)
            rows.append(row("opening cifar-10 that is here", "seconds", round(core, 3), round(clock, 3), OPEN_TARGET))
        advance(1)
    return rows


def open_once() -> int:
    """Verify CIFAR-10's training files and load them into memory."""
    open_cifar("train")
    return 1


def row(what: str, unit: str, measured: float, clock: float, target: float) -> dict[str, object]:
    """Return one row of the result; ``measured`` is based on CPU time."""
    return {"what": what, "unit": unit, "measured": measured, "by the clock": clock, "target": target}
