"""The norms that bound a perturbation: L-infinity and L2."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from torchcaps.errors import unknown_name

TINY = 1e-12  # smaller than any length that matters; avoids division by zero


class Norm(ABC):
    """A ball of radius epsilon around each image. Shapes: (B, C, H, W) everywhere, norms (B,)."""

    name: str

    @abstractmethod
    def size(self, perturbations: Tensor) -> Tensor:
        """Return the norm of each perturbation."""

    @abstractmethod
    def steepest(self, gradients: Tensor) -> Tensor:
        """Return the steps of norm 1 along which the loss grows fastest."""

    @abstractmethod
    def project(self, perturbations: Tensor, epsilon: float) -> Tensor:
        """Project each perturbation onto the ball."""

    @abstractmethod
    def sample(self, images: Tensor) -> Tensor:
        """Sample perturbations uniformly from the unit ball."""

    def clip(self, perturbed: Tensor, images: Tensor, epsilon: float, bounds: tuple[float, float] = (0, 1)) -> Tensor:
        """Clip perturbed images to within epsilon of the originals and to the bounds of the pixels.

        Both hold afterward: the originals are within the bounds, so the second step only shortens a perturbation.
        Pixels that are not finite are reset to the original.
        """
        perturbed = torch.where(perturbed.isfinite(), perturbed, images)
        return (images + self.project(perturbed - images, epsilon)).clamp(*bounds)


class LInf(Norm):
    """The largest absolute change of a pixel."""

    name = "linf"

    def size(self, perturbations: Tensor) -> Tensor:
        return perturbations.abs().flatten(1).amax(1)

    def steepest(self, gradients: Tensor) -> Tensor:
        return gradients.sign()

    def project(self, perturbations: Tensor, epsilon: float) -> Tensor:
        return perturbations.clamp(-epsilon, epsilon)

    def sample(self, images: Tensor) -> Tensor:
        return torch.rand(images.shape).to(images).mul_(2).sub_(1)


class L2(Norm):
    """The Euclidean length over all pixels."""

    name = "l2"

    def size(self, perturbations: Tensor) -> Tensor:
        lengths: Tensor = torch.linalg.vector_norm(perturbations.flatten(1), dim=1)
        return lengths

    def steepest(self, gradients: Tensor) -> Tensor:
        # Divide by the largest element first: squares of the tiny gradients of a saturated model underflow.
        scaled = gradients / gradients.abs().amax((1, 2, 3), keepdim=True).clamp_min(1e-37)
        return scaled / self._lengths(scaled)

    def project(self, perturbations: Tensor, epsilon: float) -> Tensor:
        return perturbations * (epsilon / self._lengths(perturbations)).clamp(max=1)

    def sample(self, images: Tensor) -> Tensor:
        # The fraction of the volume of the unit ball within radius r is r^n.
        directions = torch.randn(images.shape).to(images)
        radii = torch.rand(len(images)).to(images).pow(1 / images[0].numel())
        return directions / self._lengths(directions) * radii[:, None, None, None]

    def _lengths(self, perturbations: Tensor) -> Tensor:
        return self.size(perturbations).clamp_min(TINY)[:, None, None, None]


NORMS: dict[str, Norm] = {norm.name: norm for norm in (LInf(), L2())}


def get_norm(name: str) -> Norm:
    """Return the norm of that name."""
    if name not in NORMS:
        raise unknown_name("norm", name, NORMS)
    return NORMS[name]
