"""Steps up the gradient, each clipped: what FGSM, BIM and PGD share."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.attacks.norms import Norm
from torchcaps.attacks.sight import Sight


def ascend(
    sight: Sight, images: Tensor, labels: Tensor, start: Tensor, *, norm: Norm, epsilon: float, step: float, steps: int
) -> Tensor:
    """Take steps of a given size from the start, never further than epsilon from the images.

    An image stays where it is as soon as it has reached the goal: nothing is computed for it any more.

    Shapes: images, start and what is returned (B, C, H, W); labels (B,).
    """
    moved = start.clone()
    live = torch.arange(len(images), device=images.device)
    for _ in range(min(steps, sight.left)):
        gradient, reached = sight.gradient(moved[live], labels[live])
        live, gradient = live[~reached], gradient[~reached]
        if not len(live):
            break
        moved[live] = norm.clip(moved[live] + step * norm.steepest(gradient), images[live], epsilon)
    return moved
