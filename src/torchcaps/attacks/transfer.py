"""Transfer: images made on one model, judged on another. The attacker never sees the model under attack.

chen2019, section 4.3 (perturbations of a LeNet); hinton2018, section 6 (of a CNN).
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.attacks.base import Attack, AttackRecord, attacks
from torchcaps.attacks.fgsm import FGSM
from torchcaps.attacks.logits import STRONGEST, View, choose_views
from torchcaps.attacks.model_wrapper import Budget, Sight, steady
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model

SOURCE = View("source", "the logits of the model on which images are made", lambda output: output.logits)


class Transfer(Attack):
    """Another attack, made on another model with that model's own logits.

    The attack goes on to its last step also where the source is fooled early: what only just fools one model rarely
    fools another.

    Args:
        source: the model on which images are made, for the same images and classes.
        made_by: the attack that makes them; the norm is its own. None: FGSM, as in both papers.
    """

    def __init__(self, *, source: Model, made_by: Attack | None = None, norm: str = "linf") -> None:
        self.made_by = FGSM(norm=norm) if made_by is None else made_by
        super().__init__(norm=self.made_by.norm.name)
        if self.made_by.targeted or self.made_by.at_once:
            raise TorchcapsError(
                f"{type(self.made_by).__name__} cannot make images for a transfer: choose fgsm, bim or pgd"
            )
        self.source = source

    def views(self, model: Model, images: Tensor, logits: str) -> list[View]:
        return [SOURCE]  # nothing of the model under attack is seen

    def perturb(self, sight: Sight, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        model, source = sight.model, self.source
        if (source.image_shape, source.classes) != (model.image_shape, model.classes):
            raise TorchcapsError(
                f"images (C, H, W) = {source.image_shape} of {source.classes} classes cannot be transferred to a model "
                f"for {model.image_shape} and {model.classes} classes: choose a source trained on the same set"
            )
        with steady(source, seed=int(torch.randint(2**31, ()))):
            view = choose_views(STRONGEST, source(images))[0]
            return self.made_by.perturb(
                Sight(source, view, Budget(sight.budget.limit), persistent=True), images, labels, epsilon
            )


attacks.add(
    AttackRecord("transfer", "images made on another model", "chen2019", Transfer, white_box=False, needs_source=True)
)
