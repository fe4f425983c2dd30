"""From the arrays of scikit-learn to images: which shape they have, and what is black and white in them."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.models import create_model

log = logging.getLogger(__name__)
Array = NDArray[np.float32]
MOST_PIXELS_A_PIXEL = 32  # how often a pixel is repeated in each direction, at most


@dataclass(frozen=True)
class Layout:
    """How rows become images, learned from those that are trained on.

    Args:
        rows: the shape of one sample, as it comes.
        shape: height, width and channels of its image.
        low, high: the numbers that become 0 and 1, of all pixels together.
        factor: how often each pixel is repeated in each direction, where a network needs larger images.
    """

    rows: tuple[int, ...]
    shape: tuple[int, int, int]
    low: float
    high: float
    factor: int = 1

    @property
    def side(self) -> int:
        """Height and width of what the network sees: a square."""
        return self.factor * max(self.shape[:2])

    def images(self, samples: Array) -> Tensor:
        """Images (N, C, side, side) in [0, 1]: scaled as in training, with empty pixels where there is no number."""
        if samples.shape[1:] != self.rows:
            raise ValueError(f"X has samples of shape {samples.shape[1:]}, but was fitted on shape {self.rows}")
        height, width, channels = self.shape
        scaled = np.clip((samples - self.low) / (self.high - self.low or 1.0), 0.0, 1.0).reshape(len(samples), -1)
        missing = height * width * channels - scaled.shape[1]
        pixels = np.pad(scaled, ((0, 0), (0, missing))).reshape(len(samples), height, width, channels)
        square = max(height, width)
        pixels = np.pad(pixels, ((0, 0), (0, square - height), (0, square - width), (0, 0)))
        pixels = pixels.repeat(self.factor, 1).repeat(self.factor, 2).transpose(0, 3, 1, 2)
        return torch.from_numpy(np.ascontiguousarray(pixels, np.float32))


def find_layout(samples: Array, image_shape: tuple[int, ...] | None) -> Layout:
    """The layout of training samples (N, features), (N, height, width) or (N, height, width, channels)."""
    rows = samples.shape[1:]
    if image_shape is None and len(rows) == 1:
        shape = guess_shape(rows[0])
    else:
        shape = check_shape(image_shape or rows, math.prod(rows))
    return Layout(rows, shape, float(samples.min()), float(samples.max()))


def guess_shape(features: int) -> tuple[int, int, int]:
    """The smallest grey square that holds so many numbers.

    >>> guess_shape(784), guess_shape(60)
    ((28, 28, 1), (8, 8, 1))
    """
    side = math.isqrt(features - 1) + 1
    if side * side != features:
        log.warning("%d features are no square: %d empty pixels fill them up", features, side * side - features)
    return side, side, 1


def check_shape(shape: tuple[int, ...], numbers: int) -> tuple[int, int, int]:
    """Height, width and channels, if they make as many numbers as a sample has."""
    if len(shape) not in (2, 3) or min(shape) < 1 or math.prod(shape) != numbers:
        raise ValueError(
            f"image_shape should be (height, width) or (height, width, channels) of {numbers} numbers, got {shape}"
        )
    height, width, channels = (*shape, 1)[:3]
    return height, width, channels


def enlarge(layout: Layout, model: str, classes: int, size: str, options: dict[str, Any]) -> Layout:
    """The layout with the smallest images for which the network can be built."""
    for factor in range(1, MOST_PIXELS_A_PIXEL + 1):
        larger = replace(layout, factor=factor)
        shape = {"image_size": larger.side, "channels": layout.shape[2], "classes": classes}
        try:
            with torch.device("meta"):  # shapes alone
                create_model(model, **shape, size=size, **options)
        except TorchcapsError as error:
            refusal = error
        else:
            return larger
    raise refusal
