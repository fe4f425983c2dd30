"""Difficulty of the turntable dataset: a linear classifier and two CNNs, tested on unseen toys.

The dataset must separate models: the linear classifier should be clearly below the CNNs, and the CNNs below 99.5 %.
Run: python -m benchmarks.turntable_difficulty; writes results/turntable-difficulty.json.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.data import Augmentation, ImageSet, center_crop, datasets, split_off
from torchcaps.data.turntable import VERSION, open_turntable
from torchcaps.environment import describe_environment
from torchcaps.files import write_json
from torchcaps.layers import Standardize
from torchcaps.models import create_model
from torchcaps.progress import progress_bar

SEEDS = (0, 1)
EPOCHS, BATCH = 10, 128
RECORD = datasets.get("turntable")


def linear() -> nn.Module:
    return nn.Sequential(Standardize(), nn.Flatten(), nn.Linear(2 * 32 * 32, 5))


def small_cnn() -> nn.Module:
    return nn.Sequential(
        Standardize(),
        nn.Conv2d(2, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 8 * 8, 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, 5),
    )


class BaselineCNN(nn.Module):
    """The CNN that hinton2018 compares with, in laptop size; it standardizes its input."""

    def __init__(self) -> None:
        super().__init__()
        self.model = create_model("cnn-hinton2018", size="laptop", image_size=32, channels=2, classes=5)

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images).logits


MODELS = {"linear": linear, "small CNN": small_cnn, "baseline CNN of hinton2018, laptop size": BaselineCNN}


@torch.no_grad()
def accuracy(model: nn.Module, images: ImageSet) -> float:
    """Accuracy on the center crops, in percent."""
    model.eval()
    correct = 0
    for start in range(0, len(images), 500):
        batch = images.batch(torch.arange(start, min(start + 500, len(images))))
        scores = model(center_crop(batch.images, RECORD.crop))
        correct += int((scores.argmax(dim=1) == batch.labels).sum())
    return round(100 * correct / len(images), 2)


def train(model: nn.Module, images: ImageSet, seed: int) -> None:
    """Train with Adam and random crops; the learning rate decays to zero."""
    augment, generator = Augmentation(f"crop={RECORD.crop}"), torch.Generator().manual_seed(seed)
    steps = EPOCHS * (len(images) // BATCH)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model.train()
    with progress_bar(f"training, seed {seed}", steps) as advance:
        for _ in range(steps):
            batch = images.batch(torch.randint(len(images), (BATCH,), generator=generator))
            loss = F.cross_entropy(model(augment(batch.images, generator)), batch.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            advance(1)


def main() -> None:
    whole, test = (open_turntable(split) for split in ("train", "test"))
    rows = []
    for name, build in MODELS.items():
        for seed in SEEDS:
            torch.manual_seed(seed)
            training, same_toys = split_off(whole, len(whole) // 8, seed)
            model, start = build(), time.perf_counter()
            train(model, training, seed)
            row = {
                "model": name,
                "seed": seed,
                "parameters": sum(parameter.numel() for parameter in model.parameters()),
                "seconds": round(time.perf_counter() - start, 1),
                "known toys, other images (%)": accuracy(model, same_toys),
                "unseen toys (%)": accuracy(model, test),
            }
            print(row)
            rows.append(row)
    means = {
        name: round(statistics.mean(row["unseen toys (%)"] for row in rows if row["model"] == name), 2)  # type: ignore[misc]
        for name in MODELS
    }
    print("mean on unseen toys:", means)
    settings = {
        "drawings": VERSION,
        "pairs per split": len(whole),
        "epochs": EPOCHS,
        "batch": BATCH,
        "optimiser": "Adam 1e-3, cosine to 0",
        "crop": RECORD.crop,
    }
    result = {"dataset": "turntable", "settings": settings, "rows": rows, "mean on unseen toys (%)": means}
    write_json(Path("results/turntable-difficulty.json"), result | {"environment": describe_environment()})


if __name__ == "__main__":
    main()
