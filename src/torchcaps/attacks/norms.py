"""How large a perturbation is: the two norms, and what an attack needs of each."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from torchcaps.errors import unknown_name

TINY = 1e-12  # below any gradient's length that matters


class Norm(ABC):
    """A ball of radius epsilon around each image. Shapes: (B, C, H, W) everywhere, sizes (B,)."""

    name: str

    @abstractmethod
    def size(self, perturbations: Tensor) -> Tensor:
        """How large each perturbation is."""

    @abstractmethod
    def steepest(self, gradients: Tensor) -> Tensor:
        """The step of size one along which the loss grows fastest."""

    @abstractmethod
    def project(self, perturbations: Tensor, epsilon: float) -> Tensor:
        """The nearest perturbation within the ball."""

    @abstractmethod
    def draw(self, images: Tensor) -> Tensor:
        """A perturbation at random within the unit ball, uniform."""

    def clip(self, moved: Tensor, images: Tensor, epsilon: float) -> Tensor:
        """Bring images back to within epsilon of the originals and into [0, 1].

        Both hold afterwards: an original lies in [0, 1] itself, so the second clipping only shortens a perturbation.
        What is not a number stays as it was.
        """
        moved = torch.where(moved.isfinite(), moved, images)
        return (images + self.project(moved - images, epsilon)).clamp(0, 1)


class LInf(Norm):
    """The largest change of any pixel."""

    name = "linf"

    def size(self, perturbations: Tensor) -> Tensor:
        return perturbations.abs().flatten(1).amax(1)

    def steepest(self, gradients: Tensor) -> Tensor:
        return gradients.sign()

    def project(self, perturbations: Tensor, epsilon: float) -> Tensor:
        return perturbations.clamp(-epsilon, epsilon)

    def draw(self, images: Tensor) -> Tensor:
        return torch.rand(images.shape).to(images).mul_(2).sub_(1)


class L2(Norm):
    """The Euclidean length over all pixels."""

    name = "l2"

    def size(self, perturbations: Tensor) -> Tensor:
        lengths: Tensor = torch.linalg.vector_norm(perturbations.flatten(1), dim=1)
        return lengths

    def steepest(self, gradients: Tensor) -> Tensor:
        # By the largest first: a saturated model's gradients are so small that their squares are zero.
        scaled = gradients / gradients.abs().amax((1, 2, 3), keepdim=True).clamp_min(1e-37)
        return scaled / self._lengths(scaled)

    def project(self, perturbations: Tensor, epsilon: float) -> Tensor:
        return perturbations * (epsilon / self._lengths(perturbations)).clamp(max=1)

    def draw(self, images: Tensor) -> Tensor:
        # The share of a ball's volume within radius r is r^n.
        directions = torch.randn(images.shape).to(images)
        radii = torch.rand(len(images)).to(images).pow(1 / images[0].numel())
        return directions / self._lengths(directions) * radii[:, None, None, None]

    def _lengths(self, perturbations: Tensor) -> Tensor:
        return self.size(perturbations).clamp_min(TINY)[:, None, None, None]


NORMS: dict[str, Norm] = {norm.name: norm for norm in (LInf(), L2())}


def choose_norm(name: str) -> Norm:
    """The norm of that name."""
    if name not in NORMS:
        raise unknown_name("norm", name, NORMS)
    return NORMS[name]
