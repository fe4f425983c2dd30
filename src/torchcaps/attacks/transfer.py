"""Transfer: images made on one model, judged on another. The attacker never sees the model under attack.

chen2019, section 4.3 (perturbations of a LeNet); hinton2018, section 6 (of a CNN).
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.attacks.base import Attack, AttackRecord, attacks
from torchcaps.attacks.fgsm import FGSM
from torchcaps.attacks.logits import STRONGEST, View, select_views
from torchcaps.attacks.model_wrapper import ModelWrapper, QueryBudget, frozen_eval
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model

SOURCE = View("source", "the logits of the model on which images are made", lambda output: output.logits)


class Transfer(Attack):
    """Another attack, made on another model with that model's own logits.

    The attack goes on to its last step also where the source is fooled early: what only just fools one model rarely
    fools another.

    Args:
        source: the model on which images are made, for the same images and classes.
        base_attack: the attack that makes them; the norm is its own. None: FGSM, as in both papers.
    """

    def __init__(self, *, source: Model, base_attack: Attack | None = None, norm: str = "linf") -> None:
        self.base_attack = FGSM(norm=norm) if base_attack is None else base_attack
        super().__init__(norm=self.base_attack.norm.name)
        if self.base_attack.targeted or self.base_attack.all_images:
            raise TorchcapsError(
                f"{type(self.base_attack).__name__} cannot make images for a transfer: choose fgsm, bim or pgd"
            )
        self.source = source

    def views(self, model: Model, images: Tensor, logits: str) -> list[View]:
        return [SOURCE]  # nothing of the model under attack is seen

    def perturb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        model, source = wrapper.model, self.source
        if (source.image_shape, source.classes) != (model.image_shape, model.classes):
            raise TorchcapsError(
                f"images (C, H, W) = {source.image_shape} of {source.classes} classes cannot be transferred to a model "
                f"for {model.image_shape} and {model.classes} classes: choose a source trained on the same set"
            )
        with frozen_eval(source, seed=int(torch.randint(2**31, ()))):
            view = select_views(STRONGEST, source(images))[0]
            return self.base_attack.perturb(
                ModelWrapper(source, view, QueryBudget(wrapper.budget.limit), persistent=True), images, labels, epsilon
            )


attacks.add(
    AttackRecord("transfer", "images made on another model", "chen2019", Transfer, white_box=False, needs_source=True)
)
