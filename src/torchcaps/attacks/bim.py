"""BIM, the basic iterative method: FGSM in many small steps.

Kurakin, Goodfellow, Bengio: Adversarial examples in the physical world, 2016, https://arxiv.org/abs/1607.02533.
"""

from __future__ import annotations

from torch import Tensor

from torchcaps.attacks.ascent import ascend
from torchcaps.attacks.base import Attack
from torchcaps.attacks.registry import AttackRecord, attacks
from torchcaps.attacks.sight import Sight
from torchcaps.errors import TorchcapsError


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

    def perturb(self, sight: Sight, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        return self.climb(sight, images, labels, images, epsilon)

    def climb(self, sight: Sight, images: Tensor, labels: Tensor, start: Tensor, epsilon: float) -> Tensor:
        """All steps from this start."""
        step = self.relative_step * epsilon
        return ascend(sight, images, labels, start, norm=self.norm, epsilon=epsilon, step=step, steps=self.steps)


attacks.add(AttackRecord("bim", "FGSM in many small steps", "Kurakin 2016", BIM))
