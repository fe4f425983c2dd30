"""FGSM: one step along the sign of the gradient.

Goodfellow, Shlens, Szegedy: Explaining and harnessing adversarial examples, 2015, https://arxiv.org/abs/1412.6572.
"""

from __future__ import annotations

from torch import Tensor

from torchcaps.attacks.ascent import ascend
from torchcaps.attacks.base import Attack
from torchcaps.attacks.registry import AttackRecord, attacks
from torchcaps.attacks.sight import Sight


class FGSM(Attack):
    """x + epsilon sign(gradient); in L2, x + epsilon gradient / |gradient|."""

    def perturb(self, sight: Sight, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        return ascend(sight, images, labels, images, norm=self.norm, epsilon=epsilon, step=epsilon, steps=1)


attacks.add(AttackRecord("fgsm", "one step along the sign of the gradient", "Goodfellow 2015", FGSM))
