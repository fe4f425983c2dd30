"""How much CapsNet's training step costs beyond its two convolutions: python -m benchmarks.capsnet_step

Paper size, batch 32, one thread; forward, backward and Adam on both sides.
"""

from __future__ import annotations

import statistics

import torch
from torch import nn

import torchcaps  # noqa: F401  (sets up the process)
from benchmarks.timing import interleaved, ratio, write_result
from torchcaps.models import create_model
from torchcaps.train import resolve
from torchcaps.train.objective import Objective

BATCH, ROUNDS = 32, 25


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images, labels = torch.rand(BATCH, 1, 28, 28), torch.randint(0, 10, (BATCH,))

    convolutions = nn.Sequential(nn.Conv2d(1, 256, 9), nn.ReLU(), nn.Conv2d(256, 256, 9, stride=2))
    floor_optimizer = torch.optim.Adam(convolutions.parameters(), fused=True)
    objective = Objective(create_model("capsnet"), resolve(model="capsnet", size="paper"))
    optimizer = torch.optim.Adam(objective.parameters(), fused=True)

    def floor() -> None:
        floor_optimizer.zero_grad()
        convolutions(images).square().mean().backward()
        floor_optimizer.step()

    def capsnet() -> None:
        optimizer.zero_grad()
        loss, _ = objective(images, labels, None, 0.0)
        loss.backward()
        optimizer.step()

    seconds = interleaved({"convolutions": floor, "capsnet": capsnet}, ROUNDS)
    result = ratio(seconds, "capsnet", "convolutions")
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    write_result("capsnet-step", {"batch": BATCH, "threads": 1, "seconds": medians, "ratio": result})
    for name, value in medians.items():
        print(f"{name}: {1000 * value:.1f} ms per step")
    print(f"CapsNet's step / its two convolutions: {result['median']:.3f} (at most 1.15 is asked)")


if __name__ == "__main__":
    main()
