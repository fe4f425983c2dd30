"""PGD: BIM from a random start, several times.

Madry, Makelov, Schmidt, Tsipras, Vladu: Towards deep learning models resistant to adversarial attacks, 2018,
https://arxiv.org/abs/1706.06083.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.attacks.bim import BIM
from torchcaps.attacks.registry import AttackRecord, attacks
from torchcaps.attacks.sight import Sight
from torchcaps.errors import TorchcapsError


class PGD(BIM):
    """Steps along the gradient from a point drawn within epsilon; what holds is attacked again from another.

    Args:
        norm, steps, relative_step: as in :class:`BIM`.
        restarts: how many starts, for each view of the logits.
    """

    def __init__(self, *, norm: str = "linf", steps: int = 20, relative_step: float = 0.125, restarts: int = 1) -> None:
        super().__init__(norm=norm, steps=steps, relative_step=relative_step)
        if restarts < 1:
            raise TorchcapsError(f"PGD needs at least 1 start, got {restarts}")
        self.restarts = restarts

    def perturb(self, sight: Sight, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        moved = images.clone()
        live = torch.arange(len(images), device=images.device)
        for restart in range(self.restarts):
            start = self.random_start(images[live], epsilon)
            moved[live] = self.climb(sight, images[live], labels[live], start, epsilon)
            if restart + 1 == self.restarts or sight.left < 1:
                break
            live = live[~sight.margin(moved[live], labels[live])[1]]
            if not len(live):
                break
        return moved

    def random_start(self, images: Tensor, epsilon: float) -> Tensor:
        """A point within epsilon of each image."""
        return self.norm.clip(images + epsilon * self.norm.draw(images), images, epsilon)


attacks.add(AttackRecord("pgd", "BIM from random starts", "Madry 2018", PGD))
