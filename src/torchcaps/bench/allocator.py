"""What keeping freed memory gives.

The allocator can be tuned once per process, so processes with and without it take turns.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable

import torch

import torchcaps  # noqa: F401  (tunes the allocator, unless it was told not to)
from torchcaps.bench.forms import Subject
from torchcaps.bench.nets import Net
from torchcaps.bench.timing import Budget, Seconds, interleaved, threads
from torchcaps.functional import squash
from torchcaps.progress import progress_bar
from torchcaps.routing.dynamic import route_plainly

INSIDE = Budget(rounds=7)  # of one process


def compare_allocators(rounds: int) -> dict[str, dict[str, float]]:
    """For each job: median seconds with and without the tuned allocator, and the median of the ratios."""
    pairs = []
    with progress_bar("processes", 2 * rounds) as advance:
        for _ in range(rounds):
            pair = []
            for setting in ("1", "0"):
                pair.append(_measure(setting))
                advance(1)
            pairs.append(pair)
    return {
        name: {
            "tuned_seconds": statistics.median(tuned[name] for tuned, _ in pairs),
            "plain_seconds": statistics.median(plain[name] for _, plain in pairs),
            "ratio": statistics.median(tuned[name] / plain[name] for tuned, plain in pairs),
        }
        for name in pairs[0][0]
    }


def _measure(setting: str) -> dict[str, float]:
    """Median seconds of each job in a process with or without the tuned allocator."""
    command = [sys.executable, "-m", "torchcaps.bench.allocator"]
    environment = os.environ | {"TORCHCAPS_MALLOC": setting}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def time_here() -> Seconds:
    """Seconds of each job in this process, on one thread."""
    with threads(1):
        numbers, votes = torch.rand(10_000_000), torch.randn(32, 1, 1152, 10, 16, requires_grad=True)
        step = Subject(Net("capsnet", size="laptop", batch=32), "torchcaps")
        jobs: dict[str, Callable[[], object]] = {
            "elementwise chain, 10 million floats": lambda: ((numbers * 2 + 1).sin() * numbers).sum(),
            "plain dynamic routing, paper size": lambda: route_plainly(votes, 3, None, squash).pose.sum().backward(),
            "laptop CapsNet step": step.train_step,
        }
        return interleaved(jobs, INSIDE)


if __name__ == "__main__":
    print(json.dumps({name: statistics.median(values) for name, values in time_here().items()}))
