"""What keeping freed memory gives: python -m benchmarks.malloc

The allocator can be tuned once per process, so processes with and without it take turns.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

from benchmarks.timing import write_result

ROUNDS = 5
CHILD = """
import statistics, time
import torchcaps
import torch
from torchcaps.functional import squash
from torchcaps.models import create_model
from torchcaps.routing.dynamic import route_plainly
torch.set_num_threads(1)
torch.manual_seed(0)

def timed(job, times=9):
    seconds = []
    for _ in range(times):
        began = time.perf_counter(); job(); seconds.append(time.perf_counter() - began)
    return statistics.median(seconds[2:])

x = torch.rand(10_000_000)
votes = torch.randn(32, 1, 1152, 10, 16, requires_grad=True)
model = create_model("capsnet", size="laptop")
images = torch.rand(32, 1, 28, 28)
print(timed(lambda: ((x * 2 + 1).sin() * x).sum()))
print(timed(lambda: route_plainly(votes, 3, None, squash).pose.sum().backward()))
print(timed(lambda: model(images).scores.sum().backward()))
"""
JOBS = ("elementwise chain, 10 million floats", "plain dynamic routing, paper size", "laptop CapsNet step")


def measure(tuned: bool) -> list[float]:
    environment = os.environ | {"TORCHCAPS_MALLOC": "1" if tuned else "0"}
    done = subprocess.run([sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True, check=True)
    return [float(line) for line in done.stdout.split()]


def main() -> None:
    pairs = [(measure(True), measure(False)) for _ in range(ROUNDS)]
    result = {}
    for number, name in enumerate(JOBS):
        tuned = statistics.median(pair[0][number] for pair in pairs)
        plain = statistics.median(pair[1][number] for pair in pairs)
        ratio = statistics.median(pair[0][number] / pair[1][number] for pair in pairs)
        result[name] = {"tuned_seconds": tuned, "plain_seconds": plain, "ratio": ratio}
        print(f"{name}: {1000 * tuned:.1f} ms tuned, {1000 * plain:.1f} ms as it comes, ratio {ratio:.2f}")
    write_result("malloc", {"rounds": ROUNDS, "threads": 1, "jobs": result})


if __name__ == "__main__":
    main()
