"""Decoder: reconstructs an image from class capsules."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.errors import TorchcapsError


class Decoder(nn.Module):
    """Three fully connected layers that reconstruct the image (sabour2017).

    Args:
        image_shape: channels, height and width of the image.
        hidden: units of the two hidden layers.
        conditional: reconstruct from one class capsule, with the others masked to zero; otherwise from all.
        drawn_shape: channels, height and width that the layers draw, if it is less than the image: the drawing is
            enlarged.

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
        drawn_shape: tuple[int, int, int] | None = None,
    ) -> None:
        super().__init__()
        self.classes, self.size, self.hidden = classes, size, hidden
        self.image_shape, self.conditional, self.drawn_shape = image_shape, conditional, drawn_shape or image_shape
        self.layers = nn.Sequential(
            nn.Linear(classes * size, hidden[0]),
            nn.ReLU(),
            nn.Linear(hidden[0], hidden[1]),
            nn.ReLU(),
            nn.Linear(hidden[1], math.prod(self.drawn_shape)),
            nn.Sigmoid(),
        )

    def forward(self, pose: Tensor, labels: Tensor, *, enlarge: bool = True) -> Tensor:
        """Reconstruct images; without ``enlarge``, at the size that the layers draw."""
        if labels.shape != pose.shape[:1]:
            raise TorchcapsError(
                f"the decoder needs one label per image, got {len(pose)} images and labels {tuple(labels.shape)}"
            )
        if self.conditional:
            mask = torch.zeros(pose.shape[:2], dtype=pose.dtype, device=pose.device)
            pose = pose * mask.scatter(1, labels.unsqueeze(1), 1.0).unsqueeze(2)
        drawn: Tensor = self.layers(pose.flatten(1)).view(-1, *self.drawn_shape)
        if self.drawn_shape == self.image_shape or not enlarge:
            return drawn
        return F.interpolate(drawn, self.image_shape[1:], mode="bilinear", align_corners=False)
