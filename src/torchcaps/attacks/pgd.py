"""BIM, the basic iterative method, and PGD, projected gradient descent: FGSM in many small steps.

Kurakin, Goodfellow, Bengio: Adversarial examples in the physical world, 2016, https://arxiv.org/abs/1607.02533.
Madry et al.: Towards deep learning models resistant to adversarial attacks, 2018, https://arxiv.org/abs/1706.06083.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.attacks.base import Attack, AttackRecord, attacks
from torchcaps.attacks.fgsm import gradient_ascent
from torchcaps.attacks.model_wrapper import UNIT, Bounds, ModelWrapper
from torchcaps.errors import TorchcapsError


class BIM(Attack):
    """Gradient steps from the image itself, each clipped to epsilon.

    Args:
        epsilon, norm: as in :class:`Attack`.
        steps: number of steps.
        relative_step: step size as a fraction of epsilon.
    """

    def __init__(
        self, *, epsilon: float | None = None, norm: str = "linf", steps: int = 20, relative_step: float = 0.125
    ) -> None:
        super().__init__(epsilon=epsilon, norm=norm)
        if steps < 1 or relative_step <= 0:
            raise TorchcapsError(
                f"{type(self).__name__} needs at least 1 step and a relative_step above 0, "
                f"got {steps} steps and {relative_step}"
            )
        self.steps, self.relative_step = steps, relative_step

    def perturb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        return self.ascend(wrapper, images, labels, images, epsilon)

    def ascend(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, start: Tensor, epsilon: float) -> Tensor:
        """Take all steps from the given start."""
        size = self.relative_step * epsilon
        return gradient_ascent(
            wrapper, images, labels, start, norm=self.norm, epsilon=epsilon, step_size=size, steps=self.steps
        )


attacks.add(AttackRecord("bim", "FGSM in many small steps", "Kurakin 2016", BIM))


class PGD(BIM):
    """Gradient steps from a random point within epsilon; images that resist are attacked again from another point.

    Args:
        epsilon, norm, steps, relative_step: as in :class:`BIM`.
        restarts: number of random starts, for each view of the logits.
    """

    def __init__(
        self,
        *,
        epsilon: float | None = None,
        norm: str = "linf",
        steps: int = 20,
        relative_step: float = 0.125,
        restarts: int = 1,
    ) -> None:
        super().__init__(epsilon=epsilon, norm=norm, steps=steps, relative_step=relative_step)
        if restarts < 1:
            raise TorchcapsError(f"PGD needs at least 1 restart, got {restarts}")
        self.restarts = restarts

    def perturb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        perturbed = images.clone()
        active = torch.arange(len(images), device=images.device)
        for restart in range(self.restarts):
            start = self.random_start(images[active], epsilon, wrapper.bounds)
            perturbed[active] = self.ascend(wrapper, images[active], labels[active], start, epsilon)
            if restart + 1 == self.restarts or wrapper.remaining < 1:
                break
            active = active[~wrapper.margin(perturbed[active], labels[active])[1]]
            if not len(active):
                break
        return perturbed

    def random_start(self, images: Tensor, epsilon: float, bounds: Bounds = UNIT) -> Tensor:
        """Sample a point within epsilon of each image."""
        return self.norm.clip(images + epsilon * self.norm.sample(images), images, epsilon, bounds)


attacks.add(AttackRecord("pgd", "BIM from random starts", "Madry 2018", PGD))
