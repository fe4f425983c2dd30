"""Perturb single dimensions of a class capsule, and reconstruct one model's capsules with another's decoder."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.models import Model
from torchcaps.models.gu2021 import ConvNetCR, ConvNetR


@dataclass(frozen=True)
class PerturbationRange:
    """The range over which a paper perturbs a dimension: -reach to +reach in equal steps.

    With ``by_size``, the reach is multiplied by the square root of the capsule's size.
    """

    reach: float
    steps: int
    by_size: bool = False

    def for_size(self, size: int) -> tuple[float, int]:
        """Return reach and number of steps for capsules of this size."""
        return self.reach * (math.sqrt(size) if self.by_size else 1.0), self.steps


RANGES = {
    "sabour2017": PerturbationRange(0.25, 11),  # by 0.05
    "choi2019": PerturbationRange(0.25, 11, by_size=True),  # by 0.05 sqrt(D)
    "gu2021": PerturbationRange(0.2, 9),  # by 0.05
    "gu2021-units": PerturbationRange(
        8.0, 9
    ),  # for plain networks; the paper states no step, so the same number as for capsules
}


def ranges_for(model: Model) -> list[str]:
    """Return the names of the ranges that suit a model.

    The units of plain networks are unbounded and need a wider range. The capsule range of gu2021 is included for them
    too: the paper uses it to show that it changes almost nothing there.
    """
    units = isinstance(model, ConvNetCR | ConvNetR)
    return ["gu2021", "gu2021-units"] if units else ["sabour2017", "choi2019", "gu2021"]


def default_range(model: Model, paper: str = "") -> str:
    """Return the name of the range of the model's paper if there is one, or else that of sabour2017.

    Units of plain networks have a range of their own.
    """
    fitting = ranges_for(model)
    return next(name for name in ("gu2021-units", paper, "sabour2017", "gu2021") if name in fitting)


@torch.no_grad()
def perturb_dimensions(
    model: Model, image: Tensor, *, paper: str | PerturbationRange | None = None, reach: float = 0.25, steps: int = 11
) -> Tensor:
    """Reconstruct an image with each dimension of its winning capsule changed by -reach to +reach.

    The defaults are the range of sabour2017: 0.25 in steps of 0.05. ``paper`` is a range or a name in RANGES, and
    overrides ``reach`` and ``steps``.

    Shapes: image (C, H, W) to (D, steps, C, H, W).
    """
    output = model(image.unsqueeze(0))
    if output.pose is None:
        raise TorchcapsError(f"{type(model).__name__} has no class capsules to perturb: choose a capsule model")
    winner = int(output.scores.argmax(1))
    size = output.pose.shape[2]
    if isinstance(paper, str):
        if paper not in RANGES:
            raise unknown_name("perturbation range", paper, RANGES)
        paper = RANGES[paper]
    if paper is not None:
        reach, steps = paper.for_size(size)
    pose = move_dimensions(output.pose, winner, reach=reach, steps=steps)
    labels = torch.full((size * steps,), winner, device=pose.device)
    scores = output.scores.expand(size * steps, -1)
    drawn = model.reconstruct(output._replace(pose=pose, scores=scores), labels)
    return drawn.view(size, steps, *drawn.shape[1:])


def move_dimensions(pose: Tensor, label: int, *, reach: float, steps: int) -> Tensor:
    """Copy a pose with each dimension of one class capsule changed in turn by -reach to +reach.

    Shapes: (1, classes, D) to (D * steps, classes, D).
    """
    size = pose.shape[2]
    moves = torch.eye(size).unsqueeze(1) * torch.linspace(-reach, reach, steps).view(1, steps, 1)  # (D, steps, D)
    moved = pose.expand(size * steps, -1, -1).clone()
    moved[:, label] += moves.flatten(0, 1).to(pose)
    return moved


def reconstruction_change(drawn: Tensor) -> Tensor:
    """Return the mean absolute pixel difference between the two ends of each dimension's range.

    Shapes: (D, steps, C, H, W) to (D,).
    """
    return (drawn[:, -1] - drawn[:, 0]).abs().flatten(1).mean(1)


@torch.no_grad()
def reconstruct_with(other: Model, model: Model, images: Tensor, labels: Tensor | None = None) -> Tensor:
    """Reconstruct the class capsules of ``model`` with the decoder of ``other``.

    Args:
        labels: (B,), the classes to reconstruct; None for the predicted ones.

    Shapes: images (B, C, H, W) to (B, C', H', W'), the image size of ``other``.
    """
    if other.decoder is None:
        raise TorchcapsError(f"{type(other).__name__} has no decoder: choose a model that has one")
    output = model(images)
    if output.pose is None:
        raise TorchcapsError(f"{type(model).__name__} has no class capsules to reconstruct: choose a capsule model")
    expected = next(layer for layer in other.decoder.modules() if isinstance(layer, nn.Linear)).in_features
    classes, size = output.pose.shape[1:]
    if classes != other.classes or classes * size != expected:
        raise TorchcapsError(
            f"the decoder expects {other.classes} capsules of size {expected // other.classes}, but "
            f"{type(model).__name__} has {classes} of size {size}: choose models with class capsules of the same shape"
        )
    return other.reconstruct(output, labels)
