"""Steps up the gradient, each clipped: what FGSM, BIM and PGD share."""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.attacks.base import Attack, AttackRecord, attacks
from torchcaps.attacks.model_wrapper import ModelWrapper
from torchcaps.attacks.norms import Norm


def gradient_ascent(
    wrapper: ModelWrapper,
    images: Tensor,
    labels: Tensor,
    start: Tensor,
    *,
    norm: Norm,
    epsilon: float,
    step: float,
    steps: int,
) -> Tensor:
    """Take steps of a given size from the start, never further than epsilon from the images.

    An image stays where it is as soon as it has reached the goal: nothing is computed for it any more.

    Shapes: images, start and what is returned (B, C, H, W); labels (B,).
    """
    moved = start.clone()
    live = torch.arange(len(images), device=images.device)
    for _ in range(min(steps, wrapper.left)):
        gradient, reached = wrapper.gradient(moved[live], labels[live])
        live, gradient = live[~reached], gradient[~reached]
        if not len(live):
            break
        moved[live] = norm.clip(moved[live] + step * norm.steepest(gradient), images[live], epsilon)
    return moved


class FGSM(Attack):
    """x + epsilon sign(gradient); in L2, x + epsilon gradient / |gradient|."""

    def perturb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        return gradient_ascent(wrapper, images, labels, images, norm=self.norm, epsilon=epsilon, step=epsilon, steps=1)


attacks.add(AttackRecord("fgsm", "one step along the sign of the gradient", "Goodfellow 2015", FGSM))


class TargetedFGSM(FGSM):
    """x - epsilon sign(gradient of the cross-entropy with the target); ``hits`` says which targets were reached."""

    targeted = True


attacks.add(
    AttackRecord("targeted-fgsm", "one step towards each wrong class", "hinton2018", TargetedFGSM, targeted=True)
)
