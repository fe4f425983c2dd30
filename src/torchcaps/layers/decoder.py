"""Decoder: reconstructs an image from class capsules."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError


class Decoder(nn.Module):
    """Three fully connected layers that reconstruct the image (sabour2017).

    Args:
        conditional: reconstruct from one class capsule, with the others masked to zero; otherwise from all.

    Shapes: pose (B, classes, D) and labels (B,) to (B, C, H, W) with values in [0, 1].
    """

    def __init__(
        self,
        classes: int,
        size: int,
        image_shape: tuple[int, int, int],
        *,
        hidden: tuple[int, int] = (512, 1024),
        conditional: bool = True,
    ) -> None:
        super().__init__()
        self.image_shape, self.conditional = image_shape, conditional
        self.layers = nn.Sequential(
            nn.Linear(classes * size, hidden[0]),
            nn.ReLU(),
            nn.Linear(hidden[0], hidden[1]),
            nn.ReLU(),
            nn.Linear(hidden[1], math.prod(image_shape)),
            nn.Sigmoid(),
        )

    def forward(self, pose: Tensor, labels: Tensor) -> Tensor:
        if labels.shape != pose.shape[:1]:
            raise TorchcapsError(
                f"the decoder needs one label per image, got {len(pose)} images and labels {tuple(labels.shape)}"
            )
        if self.conditional:
            mask = torch.zeros(pose.shape[:2], dtype=pose.dtype, device=pose.device)
            pose = pose * mask.scatter(1, labels.unsqueeze(1), 1.0).unsqueeze(2)
        drawn: Tensor = self.layers(pose.flatten(1))
        return drawn.view(-1, *self.image_shape)
