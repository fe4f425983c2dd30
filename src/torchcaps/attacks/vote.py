r"""Vote attack: attacks the votes for the classes, before routing.

Gu, Wu, Tresp: Effective and Efficient Vote Attack on Capsule Networks, 2021, https://arxiv.org/abs/2102.10055.

.. math:: z_j = \log \left| \mathrm{squash}\Big(\frac{1}{I} \sum_i \hat u_{j|i}\Big) \right|

The gradient is that of the cross-entropy of z. It does not pass through the routing, whose couplings hide the gradient
of votes that do not agree. The routing still runs in the forward pass, to stop at images that are already
misclassified.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.attacks.base import AttackRecord, attacks
from torchcaps.attacks.fgsm import FGSM
from torchcaps.attacks.logits import LogitsView, logits_views
from torchcaps.attacks.model_wrapper import ModelWrapper
from torchcaps.attacks.pgd import PGD
from torchcaps.errors import TorchcapsError
from torchcaps.functional import safe_norm, squash
from torchcaps.layers.capsule_layer import record_layers
from torchcaps.models import Model, Output


class VoteWrapper(ModelWrapper):
    """A model whose logits are the logarithms of the lengths of squashed mean votes."""

    def query(self, images: Tensor) -> Output:
        self.budget.spend(len(images))
        return voted_output(self.model, images)


def voted_output(model: Model, images: Tensor) -> Output:
    """Run a model; return its own scores, and the logits of the votes for the classes."""
    with record_layers(votes=True) as calls:
        output: Output = model(images)
    if not calls:
        raise TorchcapsError(
            f"the vote attack needs a network with capsule layers, and {type(model).__name__} has none"
        )
    last = calls[-1]
    if last.parents.activation is not None or last.votes is None:
        raise TorchcapsError(
            "the vote attack needs class capsules whose lengths are the scores, and the routing of this network gives "
            "activations: use another attack"
        )
    mean = last.votes.mean(2).flatten(1, 2)  # (B, classes, D)
    return Output(output.scores, safe_norm(squash(mean)).clamp_min(1e-12).log(), output.pose)


class VoteFGSM(FGSM):
    """FGSM on the votes.

    Args:
        epsilon, norm: as in :class:`Attack`.
    """

    def views(self, model: Model, images: Tensor, logits: str) -> list[LogitsView]:
        return _vote_views(model, images)

    def perturb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        return super().perturb(_on_votes(wrapper), images, labels, epsilon)


class VotePGD(PGD):
    """PGD on the votes.

    Args:
        epsilon, norm, steps, relative_step, restarts: as in :class:`PGD`.
    """

    def views(self, model: Model, images: Tensor, logits: str) -> list[LogitsView]:
        return _vote_views(model, images)

    def perturb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        return super().perturb(_on_votes(wrapper), images, labels, epsilon)


def _vote_views(model: Model, images: Tensor) -> list[LogitsView]:
    with torch.no_grad():
        voted_output(model, images[:1])  # raises if the network has no votes to attack
    return [logits_views.get("logits")]


def _on_votes(wrapper: ModelWrapper) -> VoteWrapper:
    return VoteWrapper(
        wrapper.model,
        wrapper.view,
        wrapper.budget,
        bounds=wrapper.bounds,
        targeted=wrapper.targeted,
        stop_early=wrapper.stop_early,
        history=wrapper.history,
    )


attacks.add(AttackRecord("vote-fgsm", "FGSM on the votes before routing", "Gu 2021", VoteFGSM, needs_capsules=True))
attacks.add(AttackRecord("vote-pgd", "PGD on the votes before routing", "Gu 2021", VotePGD, needs_capsules=True))
