"""What an attack is: the base keeps the promise, a subclass writes the steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from torchcaps.attacks.checks import check_input
from torchcaps.attacks.logits import STRONGEST, View, choose_views
from torchcaps.attacks.norms import choose_norm
from torchcaps.attacks.result import AttackResult, Hunt, Part, joined
from torchcaps.attacks.sight import Budget, BudgetSpent, Sight, steady
from torchcaps.data.base import pieces
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model
from torchcaps.progress import progress_bar

BATCH = 100


class Attack(ABC):
    """Base of all attacks. A subclass writes ``perturb``; input is checked and the outcome clipped and judged here.

    Pixels lie in [0, 1] and epsilon is counted in them, whatever the model does to pixels first. Only images that are
    answered rightly are attacked; with ``logits="strongest"``, each further view only those that are right still.

    Args:
        norm: ``linf`` or ``l2``.

    Args of a call:
        model: the model under attack; it is left as it was.
        images: (B, C, H, W) in [0, 1].
        labels: (B,).
        epsilon: the largest perturbation, in the attack's norm.
        logits: ``strongest``, or one of the views in logits.py.
        seed: the same one gives the same outcome.
        budget: how many times a batch may go through the model at most, over all views, targets and restarts, so
            that no image is evaluated more often; None: as often as the attack's settings say. The two passes that
            judge the images before and after are not counted.
    """

    norms: ClassVar[tuple[str, ...]] = ("linf", "l2")
    targeted: ClassVar[bool] = False
    every_view: ClassVar[bool] = True  # else "strongest" is the first view that fits
    at_once: ClassVar[bool] = False  # perturb gets all images instead of a batch

    def __init__(self, *, norm: str = "linf") -> None:
        if choose_norm(norm).name not in self.norms:
            raise TorchcapsError(f"{type(self).__name__} bounds perturbations by {' or '.join(self.norms)}, not {norm}")
        self.norm = choose_norm(norm)

    @abstractmethod
    def perturb(self, sight: Sight, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        """The images moved towards the goal: away from the labels, or towards them in a targeted attack."""

    def __call__(
        self,
        model: Model,
        images: Tensor,
        labels: Tensor,
        *,
        epsilon: float,
        logits: str = STRONGEST,
        seed: int = 0,
        budget: int | None = None,
    ) -> AttackResult:
        check_input(model, images, labels, epsilon)
        device = next((each.device for each in (*model.parameters(), *model.buffers())), images.device)
        parts = []
        with steady(model, seed), progress_bar(f"{type(self).__name__} {epsilon:.3g}", len(images)) as advance:
            views = self.views(model, images[:BATCH].to(device), logits)
            for part in pieces(len(images), len(images) if self.at_once else BATCH):
                batch, truth = images[part].to(device), labels[part].long().to(device)
                hunt = Hunt(model, batch, truth, epsilon, views, Budget(budget), predict(model, batch))
                parts.append(self._hunt_targets(hunt) if self.targeted else self._hunt(hunt))
                advance(len(batch))
        return joined(parts, logits, images.device)

    @torch.no_grad()
    def views(self, model: Model, images: Tensor, logits: str) -> list[View]:
        """The views through which the model is attacked, one after the other."""
        views = choose_views(logits, model(images))
        return views if self.every_view else views[:1]

    def _hunt(self, hunt: Hunt) -> Part:
        moved, answers = self._pursue(hunt, hunt.labels, hunt.clean == hunt.labels)
        return Part(moved, answers != hunt.labels, answers, None, hunt)

    def _hunt_targets(self, hunt: Hunt) -> Part:
        """Every wrong class is the target once; the image kept is that of the first target that spoils the answer."""
        moved, answers = hunt.images, hunt.clean
        hits = torch.zeros(len(moved), hunt.model.classes, dtype=torch.bool, device=moved.device)
        for target in range(hunt.model.classes):
            wrong = hunt.labels != target
            tried, said = self._pursue(hunt, torch.full_like(hunt.labels, target), wrong & (hunt.clean != target))
            hits[:, target] = wrong & (said == target)
            take = wrong & (answers == hunt.labels)
            moved, answers = torch.where(take[:, None, None, None], tried, moved), torch.where(take, said, answers)
        return Part(moved, answers != hunt.labels, answers, hits, hunt)

    def _pursue(self, hunt: Hunt, goal: Tensor, away: Tensor) -> tuple[Tensor, Tensor]:
        """Attack, through one view after the other, what is still away from the goal: images and answers."""
        moved, answers, live = hunt.images.clone(), hunt.clean.clone(), away.nonzero().squeeze(1)
        for view in hunt.views:
            if not len(live) or hunt.budget.left < 1:
                break
            sight = Sight(hunt.model, view, hunt.budget, targeted=self.targeted, history=hunt.history)
            try:
                tried = self.perturb(sight, hunt.images[live], goal[live], hunt.epsilon)
            except BudgetSpent:
                break
            moved[live] = self.norm.clip(tried, hunt.images[live], hunt.epsilon).detach()
            answers[live] = predict(hunt.model, moved[live])
            reached = (answers[live] == goal[live]) == self.targeted
            hunt.broken[view.name] += int(reached.sum())
            live = live[~reached]
        return moved, answers


@torch.no_grad()
def predict(model: Model, images: Tensor) -> Tensor:
    """The class that the model answers for each image, (B,)."""
    return torch.cat([model(images[part]).scores.argmax(1) for part in pieces(len(images), BATCH)])
