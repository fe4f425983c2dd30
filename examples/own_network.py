"""Your own capsule network for 64x64 RGB images, trained by a plain PyTorch loop: python examples/own_network.py"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from torchcaps.functional import safe_norm
from torchcaps.layers import CapsuleLayer, PrimaryCapsules
from torchcaps.losses import margin_loss, one_hot


class SmallCapsNet(nn.Module):
    """Two convolutions, primary capsules, a convolutional and a fully connected capsule layer."""

    def __init__(self, classes: int, routing: str) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 5, stride=2), nn.ReLU(), nn.Conv2d(16, 32, 5, stride=2), nn.ReLU()
        )  # (B, 32, 13, 13)
        self.primary = PrimaryCapsules(32, 8, 8, kernel=5, stride=2)  # 5x5 cells of 8 capsules of size 8
        self.hidden = CapsuleLayer.conv((5, 5), 8, 8, 8, 12, kernel=3, routing=routing)  # 3x3 cells of 8 capsules
        self.classes = CapsuleLayer.dense(3 * 3 * 8, 12, classes, 16, routing=routing)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        capsules = self.classes(self.hidden(self.primary(self.features(images))))
        return safe_norm(capsules.pose).flatten(1)  # (B, classes): the length of each class capsule


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--routing", default="dynamic")
    given = parser.parse_args()

    torch.manual_seed(0)
    labels = torch.randint(3, (600,))
    images = 0.5 * torch.rand(600, 3, 64, 64)
    images[torch.arange(600), labels, 16:48, 16:48] += 0.5  # the class is the color of a square

    model = SmallCapsNet(3, given.routing)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    loader = DataLoader(TensorDataset(images[:500], labels[:500]), batch_size=20, shuffle=True)
    step = 0
    while step < given.steps:
        for batch, targets in loader:
            loss = margin_loss(model(batch), one_hot(targets, 3))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    with torch.no_grad():
        accuracy = (model(images[500:]).argmax(1) == labels[500:]).float().mean().item()
    print(f"accuracy {accuracy:.0%} on 100 test images after {step} steps")


if __name__ == "__main__":
    main()
