"""What an attack can be made on, and the sentences for what it cannot."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from torchcaps.attacks.logits import STRONGEST, View, select_views
from torchcaps.attacks.model_wrapper import BudgetExhausted, ModelWrapper, QueryBudget, frozen_eval
from torchcaps.attacks.norms import choose_norm
from torchcaps.attacks.result import AttackResult, AttackState, BatchResult, merge_results
from torchcaps.data.base import chunks
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model
from torchcaps.progress import progress_bar
from torchcaps.registry import Registry


# MERGED What an attack is: the base keeps the promise, a subclass writes the steps.
# MERGED Attacks by name.
def check_input(model: Model, images: Tensor, labels: Tensor, epsilon: float) -> None:
    """Refuse what would make an attack's outcome meaningless."""
    if not isinstance(model, Model):
        raise TorchcapsError(f"an attack needs a torchcaps Model, got {type(model).__name__}")
    if labels.ndim == 2:
        raise TorchcapsError(
            f"an attack needs one label per image, got {labels.shape[1]}: sets of overlaid things, such as "
            "multimnist, cannot be attacked"
        )
    if images.ndim != 4 or tuple(images.shape[1:]) != model.image_shape or not images.is_floating_point():
        raise TorchcapsError(
            f"the model takes images as floats (B, C, H, W) with (C, H, W) = {model.image_shape}, "
            f"got {images.dtype} {tuple(images.shape)}"
        )
    if not len(images) or labels.shape != images.shape[:1]:
        raise TorchcapsError(
            f"an attack needs images and as many labels, got {len(images)} images and labels {tuple(labels.shape)}"
        )
    low, high = images.min().item(), images.max().item()
    if not (0 <= low <= high <= 1):  # also where a pixel is not a number
        raise TorchcapsError(
            f"pixels must lie in [0, 1], got {low:.3g} to {high:.3g}: what prepares pixels belongs into the model"
        )
    if not 0 <= int(labels.min()) <= int(labels.max()) < model.classes:
        raise TorchcapsError(
            f"labels run from {int(labels.min())} to {int(labels.max())}, but the model has {model.classes} classes, "
            "counted from 0"
        )
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise TorchcapsError(f"epsilon must be a number of at least 0, in pixels of [0, 1], got {epsilon}")


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
    all_views: ClassVar[bool] = True  # else "strongest" is the first view that fits
    all_images: ClassVar[bool] = False  # perturb gets all images instead of a batch

    def __init__(self, *, norm: str = "linf") -> None:
        if choose_norm(norm).name not in self.norms:
            raise TorchcapsError(f"{type(self).__name__} bounds perturbations by {' or '.join(self.norms)}, not {norm}")
        self.norm = choose_norm(norm)

    @abstractmethod
    def perturb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
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
        with frozen_eval(model, seed), progress_bar(f"{type(self).__name__} {epsilon:.3g}", len(images)) as advance:
            views = self.views(model, images[:BATCH].to(device), logits)
            for part in chunks(len(images), len(images) if self.all_images else BATCH):
                batch, truth = images[part].to(device), labels[part].long().to(device)
                state = AttackState(
                    model, batch, truth, epsilon, views, QueryBudget(budget), predict_labels(model, batch)
                )
                parts.append(self._attack_targeted(state) if self.targeted else self._attack_untargeted(state))
                advance(len(batch))
        return merge_results(parts, logits, images.device)

    @torch.no_grad()
    def views(self, model: Model, images: Tensor, logits: str) -> list[View]:
        """The views through which the model is attacked, one after the other."""
        views = select_views(logits, model(images))
        return views if self.all_views else views[:1]

    def _attack_untargeted(self, state: AttackState) -> BatchResult:
        moved, answers = self._attack_remaining(state, state.labels, state.clean == state.labels)
        return BatchResult(moved, answers != state.labels, answers, None, state)

    def _attack_targeted(self, state: AttackState) -> BatchResult:
        """Every wrong class is the target once; the image kept is that of the first target that spoils the answer."""
        moved, answers = state.images, state.clean
        hits = torch.zeros(len(moved), state.model.classes, dtype=torch.bool, device=moved.device)
        for target in range(state.model.classes):
            wrong = state.labels != target
            tried, said = self._attack_remaining(
                state, torch.full_like(state.labels, target), wrong & (state.clean != target)
            )
            hits[:, target] = wrong & (said == target)
            take = wrong & (answers == state.labels)
            moved, answers = torch.where(take[:, None, None, None], tried, moved), torch.where(take, said, answers)
        return BatchResult(moved, answers != state.labels, answers, hits, state)

    def _attack_remaining(self, state: AttackState, goal: Tensor, away: Tensor) -> tuple[Tensor, Tensor]:
        """Attack, through one view after the other, what is still away from the goal: images and answers."""
        moved, answers, live = state.images.clone(), state.clean.clone(), away.nonzero().squeeze(1)
        for view in state.views:
            if not len(live) or state.budget.left < 1:
                break
            wrapper = ModelWrapper(state.model, view, state.budget, targeted=self.targeted, history=state.history)
            try:
                tried = self.perturb(wrapper, state.images[live], goal[live], state.epsilon)
            except BudgetExhausted:
                break
            moved[live] = self.norm.clip(tried, state.images[live], state.epsilon).detach()
            answers[live] = predict_labels(state.model, moved[live])
            reached = (answers[live] == goal[live]) == self.targeted
            state.broken[view.name] += int(reached.sum())
            live = live[~reached]
        return moved, answers


@torch.no_grad()
def predict_labels(model: Model, images: Tensor) -> Tensor:
    """The class that the model answers for each image, (B,)."""
    return torch.cat([model(images[part]).scores.argmax(1) for part in chunks(len(images), BATCH)])


@dataclass(frozen=True)
class AttackRecord:
    """An attack by name, with what it needs. ``build`` takes settings by name, ``norm`` among them."""

    name: str
    description: str
    paper: str
    build: Callable[..., Attack]
    norms: tuple[str, ...] = ("linf", "l2")
    white_box: bool = True  # sees gradients of the model under attack
    targeted: bool = False
    needs_source: bool = False  # another trained model
    extra: str = ""  # the optional dependencies to install: torchcaps[extra]


attacks: Registry[AttackRecord] = Registry("attack")


def create_attack(name: str, **options: Any) -> Attack:
    """Build an attack by name.

    >>> create_attack("bim", norm="l2", steps=5).norm.name
    'l2'
    """
    record = attacks.get(name)
    try:
        return record.build(**options)
    except TypeError as error:
        raise TorchcapsError(f"attack '{name}' does not take these settings: {error}") from error
