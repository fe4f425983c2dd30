"""BIM, the basic iterative method: FGSM in many small steps.

Kurakin, Goodfellow, Bengio: Adversarial examples in the physical world, 2016, https://arxiv.org/abs/1607.02533.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.attacks.base import Attack, AttackRecord, attacks
from torchcaps.attacks.fgsm import gradient_ascent
from torchcaps.attacks.model_wrapper import ModelWrapper
from torchcaps.errors import TorchcapsError


# MERGED PGD: BIM from a random start, several times.
class BIM(Attack):
    """Steps along the gradient from the image itself, each clipped to epsilon.

    Args:
        norm: ``linf`` or ``l2``.
        steps: how many.
        relative_step: size of one, as a share of epsilon.
    """

    def __init__(self, *, norm: str = "linf", steps: int = 20, relative_step: float = 0.125) -> None:
        super().__init__(norm=norm)
        if steps < 1 or relative_step <= 0:
            raise TorchcapsError(
                f"an attack needs at least 1 step of a size above 0, got {steps} steps of {relative_step} epsilon"
            )
        self.steps, self.relative_step = steps, relative_step

    def perturb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        return self.climb(wrapper, images, labels, images, epsilon)

    def climb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, start: Tensor, epsilon: float) -> Tensor:
        """All steps from this start."""
        step = self.relative_step * epsilon
        return gradient_ascent(
            wrapper, images, labels, start, norm=self.norm, epsilon=epsilon, step=step, steps=self.steps
        )


attacks.add(AttackRecord("bim", "FGSM in many small steps", "Kurakin 2016", BIM))


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

    def perturb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        moved = images.clone()
        live = torch.arange(len(images), device=images.device)
        for restart in range(self.restarts):
            start = self.random_start(images[live], epsilon)
            moved[live] = self.climb(wrapper, images[live], labels[live], start, epsilon)
            if restart + 1 == self.restarts or wrapper.left < 1:
                break
            live = live[~wrapper.margin(moved[live], labels[live])[1]]
            if not len(live):
                break
        return moved

    def random_start(self, images: Tensor, epsilon: float) -> Tensor:
        """A point within epsilon of each image."""
        return self.norm.clip(images + epsilon * self.norm.draw(images), images, epsilon)


attacks.add(AttackRecord("pgd", "BIM from random starts", "Madry 2018", PGD))
