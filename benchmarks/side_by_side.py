"""Compare two trainings of one thread each, side by side, with one training of two threads.

Laptop CapsNet on 40x40 images in batches of 64. Each round trains both ways for the same number of steps, in turn, so
that a change of the machine's speed affects both. Throughput is counted over both trainings. Profile desk of
``torchcaps reproduce`` runs one thread per training; this measures whether that is the faster way.

Run: python -m benchmarks.side_by_side (minutes; keep the machine idle). Writes results/bench/side-by-side.json.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path

import torch

from torchcaps.bench.workload import NetSpec, Workload
from torchcaps.environment import describe_environment
from torchcaps.files import write_json

TARGET = Path("results/bench/side-by-side.json")
NET = NetSpec("capsnet", size="laptop", batch=64, image_size=40)
WARMUP = 3
MOST_SECONDS = 600
WAYS = {"two trainings of one thread": (2, 1), "one training of two threads": (1, 2)}


def train(threads: int, steps: int, ready: Barrier) -> None:
    """Train for some steps; the barrier is passed when the warm-up is over, and again at the end."""
    torch.set_num_threads(threads)
    work = Workload(NET, "torchcaps")
    for _ in range(WARMUP):
        work.train_step()
    ready.wait()
    for _ in range(steps):
        work.train_step()
    ready.wait()


def images_per_second(trainings: int, threads: int, steps: int) -> float:
    """Return the throughput of trainings that run at the same time, each in a process of its own."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(trainings + 1, timeout=MOST_SECONDS)  # a training that fails never reaches it
    processes = [context.Process(target=train, args=(threads, steps, ready)) for _ in range(trainings)]
    for process in processes:
        process.start()
    ready.wait()
    began = time.perf_counter()
    ready.wait()
    seconds = time.perf_counter() - began
    for process in processes:
        process.join()
    return trainings * steps * NET.batch / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=40, help="training steps per round")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    load = os.getloadavg()[0]
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(given.rounds):
        for way, (trainings, threads) in WAYS.items():
            found[way].append(images_per_second(trainings, threads, given.steps))
            print(f"{way}: {found[way][-1]:.1f} images/s", flush=True)
    medians = {way: round(statistics.median(values), 1) for way, values in found.items()}
    side_by_side, together = medians.values()
    write_json(
        TARGET,
        {
            "network": "capsnet, laptop size, 40x40, batch 64",
            "images_per_second": medians,
            "rounds": {way: [round(value, 1) for value in values] for way, values in found.items()},
            "ratio": round(side_by_side / together, 3),
            "steps": given.steps,
            "load_average_before": round(load, 1),
            "environment": describe_environment(),
        },
    )
    print(f"ratio {side_by_side / together:.2f}; written to {TARGET}")


if __name__ == "__main__":
    main()
