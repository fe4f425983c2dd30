"""What one number of a capsule means: change it alone and draw the result."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.models import Model


@torch.no_grad()
def perturb_dimensions(model: Model, image: Tensor, *, reach: float = 0.25, steps: int = 11) -> Tensor:
    """Reconstructions of one image with each dimension of its winning capsule moved by -reach to +reach.

    The range of sabour2017 is 0.25 in steps of 0.05.

    Shapes: image (C, H, W) to (D, steps, C, H, W).
    """
    output = model(image.unsqueeze(0))
    if output.pose is None:
        raise TorchcapsError(f"{type(model).__name__} has no capsules whose dimensions could be moved")
    winner = int(output.scores.argmax(1))
    size = output.pose.shape[2]
    moves = torch.eye(size).unsqueeze(1) * torch.linspace(-reach, reach, steps).view(1, steps, 1)  # (D, steps, D)
    pose = output.pose.expand(size * steps, -1, -1).clone()
    pose[:, winner] += moves.flatten(0, 1).to(pose)
    labels = torch.full((size * steps,), winner, device=pose.device)
    scores = output.scores.expand(size * steps, -1)
    drawn = model.reconstruct(output._replace(pose=pose, scores=scores), labels)
    return drawn.view(size, steps, *drawn.shape[1:])
