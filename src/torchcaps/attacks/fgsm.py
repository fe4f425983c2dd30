"""FGSM, the fast gradient sign method, untargeted and targeted, and the gradient ascent that BIM and PGD share with it.

Goodfellow, Shlens, Szegedy: Explaining and harnessing adversarial examples, 2015, https://arxiv.org/abs/1412.6572.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.attacks.base import Attack, AttackRecord, attacks
from torchcaps.attacks.model_wrapper import ModelWrapper
from torchcaps.attacks.norms import Norm


class FGSM(Attack):
    """x + epsilon sign(gradient); in L2, x + epsilon gradient / |gradient|.

    Args:
        epsilon, norm: as in :class:`Attack`.
    """

    def perturb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        return gradient_ascent(
            wrapper, images, labels, images, norm=self.norm, epsilon=epsilon, step_size=epsilon, steps=1
        )


attacks.add(AttackRecord("fgsm", "one step along the sign of the gradient", "Goodfellow 2015", FGSM))


class TargetedFGSM(FGSM):
    """x - epsilon sign(gradient of the cross-entropy with the target), for every wrong class as target.

    ``hits`` of the result tells which targets were reached.
    """

    targeted = True


attacks.add(AttackRecord("targeted-fgsm", "one step toward each wrong class", "hinton2018", TargetedFGSM))


def gradient_ascent(
    wrapper: ModelWrapper,
    images: Tensor,
    labels: Tensor,
    start: Tensor,
    *,
    norm: Norm,
    epsilon: float,
    step_size: float,
    steps: int,
) -> Tensor:
    """Take gradient steps from the start, clipped to epsilon around the images; stop where the goal is reached.

    Shapes: images, start and result (B, C, H, W); labels (B,).
    """
    perturbed = start.clone()
    active = torch.arange(len(images), device=images.device)
    for _ in range(min(steps, wrapper.remaining)):
        gradient, reached = wrapper.gradient(perturbed[active], labels[active])
        active, gradient = active[~reached], gradient[~reached]
        if not len(active):
            break
        moved = perturbed[active] + step_size * norm.steepest(gradient)
        perturbed[active] = norm.clip(moved, images[active], epsilon, wrapper.bounds)
    return perturbed
