"""Common corruptions of images: noise, blur, weather and digital artifacts, in five severities.

Hendrycks, Dietterich: Benchmarking Neural Network Robustness to Common Corruptions and Perturbations, 2019,
https://arxiv.org/abs/1903.12261: the fifteen corruptions of ImageNet-C, with the strengths that its authors chose for
the 32 pixels of CIFAR-10-C. Lengths in pixels grow with the side of the image.

Differences from the authors' files: frost is drawn from a random texture instead of photographs, fog from noise in
octaves instead of the diamond-square algorithm, and blurs interpolate instead of rounding to whole pixels. Accuracies
are therefore not comparable with those on CIFAR-10-C to the last point.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Generator, Tensor
from torch.nn import functional as F

from torchcaps.errors import TorchcapsError
from torchcaps.registry import Registry

SEVERITIES = (1, 2, 3, 4, 5)
USUAL_SIDE = 32  # pixels of the images that the strengths were chosen for


@dataclass(frozen=True)
class Corruption:
    """A corruption by name. ``change`` takes images (B, C, H, W) in [0, 1], a strength and a random generator."""

    name: str
    kind: str  # noise, blur, weather or digital
    strengths: tuple[Any, ...]  # one for each severity
    change: Callable[[Tensor, Any, Generator], Tensor]

    def __call__(self, images: Tensor, severity: int, *, seed: int = 0) -> Tensor:
        """Return corrupted images in [0, 1]; the same seed gives the same images."""
        if severity not in SEVERITIES:
            raise TorchcapsError(f"a corruption has severities 1 to 5, got {severity}")
        generator = Generator().manual_seed(seed)
        return self.change(images, self.strengths[severity - 1], generator).clamp(0, 1)


corruptions: Registry[Corruption] = Registry("corruption")
"""All corruptions by name."""


def _gaussian_noise(images: Tensor, deviation: float, generator: Generator) -> Tensor:
    return images + deviation * torch.randn(images.shape, generator=generator)


def _shot_noise(images: Tensor, photons: float, generator: Generator) -> Tensor:
    return torch.poisson(images * photons, generator) / photons


def _impulse_noise(images: Tensor, share: float, generator: Generator) -> Tensor:
    chosen = torch.rand(images.shape, generator=generator) < share
    salt = torch.rand(images.shape, generator=generator) < 0.5
    return torch.where(chosen, salt.to(images.dtype), images)


def _defocus(images: Tensor, strength: tuple[float, float], generator: Generator) -> Tensor:
    radius, softness = strength[0] * _scale(images), strength[1]
    reach = math.ceil(radius) + 1
    at = torch.arange(-reach, reach + 1)
    disk = ((at[:, None] ** 2 + at**2) <= radius**2).to(images.dtype)
    kernel = _gaussian_blur((disk / disk.sum())[None, None], softness, reach=1, outside="constant")
    return _convolve(images, kernel[0, 0])


def _glass(images: Tensor, strength: tuple[float, int], generator: Generator) -> Tensor:
    """Blur, swap each pixel with a neighbor above or to the left of it, and blur again."""
    sigma, rounds = strength[0] * _scale(images), strength[1]
    shuffled = _gaussian_blur(images, sigma).clone()
    count, _, height, width = images.shape
    every = torch.arange(count)
    for _ in range(rounds):
        for row in range(height - 1, 1, -1):
            for column in range(width - 1, 1, -1):
                up, left = torch.randint(2, (2, count), generator=generator)
                here, there = shuffled[:, :, row, column].clone(), shuffled[every, :, row - up, column - left]
                shuffled[:, :, row, column] = there
                shuffled[every, :, row - up, column - left] = here
    return _gaussian_blur(shuffled, sigma)


def _motion(images: Tensor, strength: tuple[int, float], generator: Generator) -> Tensor:
    angles = 90 * torch.rand(len(images), generator=generator) - 45
    return _motion_blur(images, *strength, angles)


def _zoom_blur(images: Tensor, last: float, generator: Generator) -> Tensor:
    factors = [1 + 0.01 * step for step in range(round(100 * (last - 1)))]
    return (images + sum(_zoom(images, factor) for factor in factors)) / (len(factors) + 1)


def _snow(images: Tensor, strength: tuple[float, ...], generator: Generator) -> Tensor:
    mean, deviation, zoom, threshold, radius, sigma, kept = strength
    count, _, height, width = images.shape
    flakes = mean + deviation * torch.randn(count, 1, height, width, generator=generator)
    flakes = _zoom(flakes, zoom)
    flakes = torch.where(flakes < threshold, 0.0, flakes.clamp(0, 1))
    angles = -135 + 90 * torch.rand(count, generator=generator)
    flakes = _motion_blur(flakes, int(radius), sigma, angles)
    whitened = torch.maximum(images, 1.5 * images.mean(1, keepdim=True) + 0.5)
    return kept * images + (1 - kept) * whitened + flakes + flakes.rot90(2, (2, 3))


def _frost(images: Tensor, strength: tuple[float, float], generator: Generator) -> Tensor:
    kept, added = strength
    ridges = 1 - 2 * (_octaves(images, 1.6, generator) - 0.5).abs()  # bright along the level lines, like ice needles
    return kept * images + added * ridges


def _fog(images: Tensor, strength: tuple[float, float], generator: Generator) -> Tensor:
    thickness, decay = strength
    brightest = images.amax((1, 2, 3), keepdim=True)
    return (images + thickness * _octaves(images, decay, generator)) * brightest / (brightest + thickness)


def _brightness(images: Tensor, amount: float, generator: Generator) -> Tensor:
    if images.shape[1] != 3:
        return images + amount
    value = images.amax(1, keepdim=True)  # of hue, saturation and value
    lighter = (value + amount).clamp(max=1)
    return torch.where(value > 0, images * lighter / value.clamp_min(1e-6), lighter)


def _contrast(images: Tensor, factor: float, generator: Generator) -> Tensor:
    mean = images.mean((2, 3), keepdim=True)
    return mean + factor * (images - mean)


def _elastic(images: Tensor, strength: tuple[float, float, float], generator: Generator) -> Tensor:
    """Move three points of the image at random, and all pixels by a smooth random field; strengths in image sides."""
    count, _, height, width = images.shape
    side = min(height, width)
    moved, smooth, corners = (each * side for each in strength)
    reach = float(side // 3)
    points = torch.tensor([[reach, reach, 1.0], [reach, -reach, 1.0], [-reach, -reach, 1.0]])
    jitter = corners * (2 * torch.rand(count, 3, 2, generator=generator) - 1)
    affine = torch.linalg.solve(points.expand(count, 3, 3), points[:, :2] + jitter).transpose(1, 2)  # (B, 2, 3)
    # The grid maps results to sources, so the inverse is sampled: as random as the map itself.
    affine[:, :, 2] *= torch.tensor([2 / width, 2 / height])
    grid = F.affine_grid(affine, [count, 1, height, width], align_corners=False)
    if moved:
        field = 2 * torch.rand(count, 2, height, width, generator=generator) - 1
        field = moved * _gaussian_blur(field, smooth, outside="reflect") if smooth else moved * field
        grid = grid + field.permute(0, 2, 3, 1) * torch.tensor([2 / width, 2 / height])
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)


def _pixelate(images: Tensor, share: float, generator: Generator) -> Tensor:
    height, width = images.shape[2:]
    small = F.interpolate(images, (int(share * height), int(share * width)), mode="area")
    return F.interpolate(small, (height, width), mode="area")


def _jpeg(images: Tensor, quality: int, generator: Generator) -> Tensor:
    found = []
    for image in images:
        pixels = (255 * image).round().byte().numpy()
        # Three channels are one color picture; others are compressed one by one.
        pictures = [pixels.transpose(1, 2, 0)] if len(pixels) == 3 else list(pixels)
        decoded = [np.asarray(_recompress(Image.fromarray(each), quality)) for each in pictures]
        found.append(torch.from_numpy(np.stack(decoded)).float() / 255)
    stacked = torch.stack(found)
    return stacked.squeeze(1).permute(0, 3, 1, 2) if images.shape[1] == 3 else stacked


def _recompress(picture: Image.Image, quality: int) -> Image.Image:
    written = io.BytesIO()
    picture.save(written, "JPEG", quality=quality)
    return Image.open(written).convert(picture.mode)


def _scale(images: Tensor) -> float:
    return min(images.shape[2:]) / USUAL_SIDE


def _gaussian_blur(images: Tensor, sigma: float, *, reach: int | None = None, outside: str = "replicate") -> Tensor:
    side = min(images.shape[2:])
    reach = min(max(1, math.ceil(3 * sigma)), side - 1) if reach is None else reach
    weights = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / sigma) ** 2).to(images.dtype)
    weights = weights / weights.sum()
    return _convolve(images, weights[:, None] * weights, outside)


def _convolve(images: Tensor, kernel: Tensor, outside: str = "replicate") -> Tensor:
    rows, columns = (side // 2 for side in kernel.shape)
    padded = F.pad(images, (columns, columns, rows, rows), mode=outside)
    return F.conv2d(padded.flatten(0, 1).unsqueeze(1), kernel[None, None]).view_as(images)


def _zoom(images: Tensor, factor: float) -> Tensor:
    theta = torch.tensor([[1 / factor, 0.0, 0.0], [0.0, 1 / factor, 0.0]]).expand(len(images), 2, 3)
    grid = F.affine_grid(theta, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def _motion_blur(images: Tensor, radius: int, sigma: float, angles: Tensor) -> Tensor:
    """Average each image along a direction in degrees, with the weights of one half of a Gaussian."""
    height, width = images.shape[2:]
    directions = torch.stack([torch.deg2rad(angles).cos() / width, torch.deg2rad(angles).sin() / height], 1)  # (B, 2)
    still = torch.eye(2, 3).expand(len(images), 2, 3)
    sums, total = torch.zeros_like(images), 0.0
    for step in range(2 * radius + 1):
        weight = math.exp(-0.5 * (step / sigma) ** 2)
        theta = still.clone()
        theta[:, :, 2] = 2 * step * _scale(images) * directions
        grid = F.affine_grid(theta, list(images.shape), align_corners=False)
        sums = sums + weight * F.grid_sample(images, grid, padding_mode="border", align_corners=False)
        total += weight
    return sums / total


def _octaves(images: Tensor, decay: float, generator: Generator) -> Tensor:
    """Random clouds (B, 1, H, W) in [0, 1]: noise of ever finer grain, each octave weaker by the factor decay."""
    count, _, height, width = images.shape
    clouds, grain, weight = torch.zeros(count, 1, height, width), 2, 1.0
    while grain <= 2 * max(height, width):
        noise = torch.rand(count, 1, grain, grain, generator=generator)
        clouds = clouds + weight * F.interpolate(noise, (height, width), mode="bilinear", align_corners=True)
        grain, weight = 2 * grain, weight / decay
    low, high = clouds.amin((2, 3), keepdim=True), clouds.amax((2, 3), keepdim=True)
    return (clouds - low) / (high - low).clamp_min(1e-6)


SNOW = (
    (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
    (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
    (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
    (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
    (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
)
ELASTIC = ((0.0, 0.0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))
DEFOCUS = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))
for corruption in (
    Corruption("gaussian-noise", "noise", (0.04, 0.06, 0.08, 0.09, 0.1), _gaussian_noise),
    Corruption("shot-noise", "noise", (500, 250, 100, 75, 50), _shot_noise),
    Corruption("impulse-noise", "noise", (0.01, 0.02, 0.03, 0.05, 0.07), _impulse_noise),
    Corruption("defocus-blur", "blur", DEFOCUS, _defocus),
    Corruption("glass-blur", "blur", ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2)), _glass),
    Corruption("motion-blur", "blur", ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)), _motion),
    Corruption("zoom-blur", "blur", (1.06, 1.11, 1.16, 1.21, 1.26), _zoom_blur),
    Corruption("snow", "weather", SNOW, _snow),
    Corruption("frost", "weather", ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)), _frost),
    Corruption("fog", "weather", ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)), _fog),
    Corruption("brightness", "weather", (0.05, 0.1, 0.15, 0.2, 0.3), _brightness),
    Corruption("contrast", "digital", (0.75, 0.5, 0.4, 0.3, 0.15), _contrast),
    Corruption("elastic-transform", "digital", ELASTIC, _elastic),
    Corruption("pixelate", "digital", (0.95, 0.9, 0.85, 0.75, 0.65), _pixelate),
    Corruption("jpeg-compression", "digital", (80, 65, 58, 50, 40), _jpeg),
):
    corruptions.add(corruption)
