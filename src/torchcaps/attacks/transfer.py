"""Transfer: adversarial images made on a source model and tested on the attacked model, which is never queried.

chen2019, section 4.3 (source: a LeNet); hinton2018, section 6 (source: a CNN).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchcaps.attacks.base import BATCH, Attack, AttackRecord, attacks
from torchcaps.attacks.fgsm import FGSM
from torchcaps.attacks.logits import STRONGEST, LogitsView, select_views
from torchcaps.attacks.model_wrapper import ModelWrapper, Preprocessing, QueryBudget, as_classifier, frozen_eval
from torchcaps.data.base import chunks
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model

SOURCE = LogitsView("source", "the logits of the source model", lambda output: output.logits)


class Transfer(Attack):
    """Another attack, run on a source model through its own logits.

    The attack takes all of its steps even if the source model is fooled early: images that barely fool one model rarely
    fool another.

    Args:
        source: the source model, for the same images and classes: a torchcaps model or a plain ``nn.Module``.
        base_attack: the attack on the source model, whose norm is used; None for FGSM, as in both papers.
        source_preprocessing: the preprocessing of a plain source model, as in :class:`Attack`.
        epsilon, norm: as in :class:`Attack`.
    """

    def __init__(
        self,
        *,
        source: nn.Module,
        base_attack: Attack | None = None,
        source_preprocessing: Preprocessing = None,
        epsilon: float | None = None,
        norm: str = "linf",
    ) -> None:
        self.base_attack = FGSM(norm=norm) if base_attack is None else base_attack
        super().__init__(epsilon=epsilon, norm=self.base_attack.norm.name)
        if self.base_attack.targeted or self.base_attack.all_images:
            raise TorchcapsError(
                f"{type(self.base_attack).__name__} cannot be transferred: use fgsm, bim or pgd as base_attack"
            )
        self.source, self.source_preprocessing = source, source_preprocessing

    def views(self, model: Model, images: Tensor, logits: str) -> list[LogitsView]:
        return [SOURCE]  # the attacked model is never queried

    def perturb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        model = wrapper.model
        source = as_classifier(self.source, images[:1], wrapper.bounds, self.source_preprocessing)
        if (source.image_shape, source.classes) != (model.image_shape, model.classes):
            raise TorchcapsError(
                f"images (C, H, W) = {source.image_shape} of {source.classes} classes cannot be transferred to a model "
                f"for {model.image_shape} and {model.classes} classes: use a source trained on the same dataset"
            )
        with frozen_eval(source, seed=int(torch.randint(2**31, ()))):
            view, budget = select_views(STRONGEST, source(images))[0], QueryBudget(wrapper.budget.limit)
            wrapped = ModelWrapper(source, view, budget, bounds=wrapper.bounds, stop_early=False)
            return self.base_attack.perturb(wrapped, images, labels, epsilon)


def unclipped_fgsm(source: Model, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    """FGSM on a source model without clipping to the bounds of the pixels: x + epsilon sign(gradient).

    The result may lie far outside [0, 1] and is then no image. It shows what a model answers if epsilon was meant for
    pixels of another scale, such as 8 of 255 applied to pixels in [0, 1] (chen2019, section 4.3).

    Shapes: images and result (B, C, H, W), labels (B,).
    """
    moved = []
    with frozen_eval(source, seed=0):
        with torch.no_grad():
            view = select_views(STRONGEST, source(images[:BATCH]))[0]
        wrapper = ModelWrapper(source, view, QueryBudget())
        for part in chunks(len(images), BATCH):
            gradient, _ = wrapper.gradient(images[part], labels[part])
            moved.append(images[part] + epsilon * gradient.sign())
    return torch.cat(moved)


attacks.add(
    AttackRecord("transfer", "images made on another model", "chen2019", Transfer, white_box=False, needs_source=True)
)
