"""What one number of a capsule means: change it alone and draw the result."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.models import Model
from torchcaps.models.gu2021 import ConvNetCR, ConvNetR


# MERGED Reconstructions from one model's decoder, fed with another model's capsules.
@dataclass(frozen=True)
class PerturbationRange:
    """How far and in how many steps a paper moves a dimension; ``by_size``: times the root of the capsule's size."""

    reach: float
    steps: int
    by_size: bool = False

    def arguments(self, size: int) -> tuple[float, int]:
        """Reach and steps for capsules of this size."""
        return self.reach * (math.sqrt(size) if self.by_size else 1.0), self.steps


RANGES = {
    "sabour2017": PerturbationRange(0.25, 11),  # by 0.05
    "choi2019": PerturbationRange(0.25, 11, by_size=True),  # by 0.05 sqrt(D)
    "gu2021": PerturbationRange(0.2, 9),  # by 0.05
    "gu2021-units": PerturbationRange(8.0, 9),  # of plain networks; the paper gives no step: as many as for capsules
}


def ranges_for(model: Model) -> list[str]:
    """The ranges that fit a model: plain units are not bounded as capsules are, and take a range of their own.

    gu2021 shows that its range for capsules changes next to nothing in plain networks, so that is among theirs too.
    """
    units = isinstance(model, ConvNetCR | ConvNetR)
    return ["gu2021", "gu2021-units"] if units else ["sabour2017", "choi2019", "gu2021"]


@torch.no_grad()
def perturb_dimensions(
    model: Model, image: Tensor, *, paper: str | PerturbationRange | None = None, reach: float = 0.25, steps: int = 11
) -> Tensor:
    """Reconstructions of one image with each dimension of its winning capsule moved by -reach to +reach.

    The range of sabour2017 is 0.25 in steps of 0.05; ``paper`` is a range, or the name of one of RANGES, and takes the
    place of the other two.

    Shapes: image (C, H, W) to (D, steps, C, H, W).
    """
    output = model(image.unsqueeze(0))
    if output.pose is None:
        raise TorchcapsError(f"{type(model).__name__} has no capsules whose dimensions could be moved")
    winner = int(output.scores.argmax(1))
    size = output.pose.shape[2]
    if isinstance(paper, str):
        if paper not in RANGES:
            raise unknown_name("range of perturbation", paper, RANGES)
        paper = RANGES[paper]
    if paper is not None:
        reach, steps = paper.arguments(size)
    pose = move_dimensions(output.pose, winner, reach=reach, steps=steps)
    labels = torch.full((size * steps,), winner, device=pose.device)
    scores = output.scores.expand(size * steps, -1)
    drawn = model.reconstruct(output._replace(pose=pose, scores=scores), labels)
    return drawn.view(size, steps, *drawn.shape[1:])


def move_dimensions(pose: Tensor, label: int, *, reach: float, steps: int) -> Tensor:
    """A pose with each number of one class's capsule moved by -reach to +reach, one after the other.

    Shapes: (1, classes, D) to (D * steps, classes, D).
    """
    size = pose.shape[2]
    moves = torch.eye(size).unsqueeze(1) * torch.linspace(-reach, reach, steps).view(1, steps, 1)  # (D, steps, D)
    moved = pose.expand(size * steps, -1, -1).clone()
    moved[:, label] += moves.flatten(0, 1).to(pose)
    return moved


def reconstruction_change(drawn: Tensor) -> Tensor:
    """How much each dimension changes a drawing: the mean difference of a pixel between the two ends.

    Shapes: (D, steps, C, H, W) to (D,).
    """
    return (drawn[:, -1] - drawn[:, 0]).abs().flatten(1).mean(1)


@torch.no_grad()
def reconstruct_with(other: Model, model: Model, images: Tensor, labels: Tensor | None = None) -> Tensor:
    """Draw what ``model`` holds of the images with the decoder of ``other``.

    Args:
        labels: (B,), the classes to draw; None for the highest scores.

    Shapes: images (B, C, H, W) to (B, C', H', W'), the size of the images that ``other`` was built for.
    """
    if other.decoder is None:
        raise TorchcapsError(f"this {type(other).__name__} has no decoder to draw with: name a model that has one")
    output = model(images)
    if output.pose is None:
        raise TorchcapsError(f"{type(model).__name__} has no capsules that a decoder could draw")
    expected = next(layer for layer in other.decoder.modules() if isinstance(layer, nn.Linear)).in_features
    classes, size = output.pose.shape[1:]
    if classes != other.classes or classes * size != expected:
        raise TorchcapsError(
            f"the decoder was built for {other.classes} capsules of {expected // other.classes} numbers, and "
            f"{type(model).__name__} has {classes} of {size}: choose two models with capsules of the same shape"
        )
    return other.reconstruct(output, labels)
