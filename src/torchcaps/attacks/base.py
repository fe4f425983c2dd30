"""The base class of all attacks, which checks, clips and judges, and the registry of attacks by name."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchcaps.attacks.logits import STRONGEST, LogitsView, select_views
from torchcaps.attacks.model_wrapper import (
    UNIT,
    Bounds,
    BudgetExhausted,
    ModelWrapper,
    Preprocessing,
    QueryBudget,
    as_classifier,
    frozen_eval,
    model_device,
)
from torchcaps.attacks.norms import get_norm
from torchcaps.attacks.result import AttackResult, AttackState, merge_results
from torchcaps.data.base import chunks
from torchcaps.errors import TorchcapsError, wrong_settings
from torchcaps.models import Model
from torchcaps.progress import progress_bar
from torchcaps.registry import Registry

BATCH = 100


class Attack(ABC):
    """Base class of all attacks. A subclass implements :meth:`perturb`.

    The base class checks the input, clips the perturbed images to epsilon and to the bounds of the pixels, and measures
    success on the clipped images. Only correctly classified images are attacked. With ``logits="strongest"``, every
    further view attacks only the images that are still classified correctly.

    Args:
        epsilon: the largest perturbation, in the attack's norm and in the units of the pixels. A call may give another.
        norm: ``linf`` or ``l2``.

    Args of a call:
        model: a torchcaps model, or any ``nn.Module`` that returns logits (B, classes). It is left unchanged.
        images: (B, C, H, W), within the bounds.
        labels: (B,).
        epsilon: overrides the attack's epsilon.
        logits: which logits of a capsule network the attack follows: ``strongest`` or the name of one of
            ``torchcaps.attacks.logits_views``.
        seed: the same seed gives the same result.
        budget: the largest number of forward passes per batch, over all views, targets and restarts; None for no limit.
            The two passes that classify the images before and after the attack are not counted.
        bounds: the smallest and the largest value of a pixel. Torchcaps models take (0, 1).
        preprocessing: what is applied to the pixels before a plain ``nn.Module`` sees them: a callable, or the mean and
            the standard deviation of each channel. Epsilon and bounds hold for the pixels before this step.

    >>> network = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    >>> from torchcaps.attacks import PGD
    >>> PGD(epsilon=0.1)(network, torch.rand(5, 1, 4, 4), torch.tensor([0, 1, 2, 0, 1])).images.shape
    torch.Size([5, 1, 4, 4])
    """

    norms: ClassVar[tuple[str, ...]] = ("linf", "l2")
    targeted: ClassVar[bool] = False
    all_views: ClassVar[bool] = True  # if False, "strongest" uses only the first view that fits
    all_images: ClassVar[bool] = False  # perturb receives all images at once instead of batches

    def __init__(self, *, epsilon: float | None = None, norm: str = "linf") -> None:
        self.epsilon, self.norm = epsilon, get_norm(norm)
        if norm not in self.norms:
            raise TorchcapsError(f"{type(self).__name__} supports norm {' or '.join(self.norms)}, got '{norm}'")

    @abstractmethod
    def perturb(self, wrapper: ModelWrapper, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
        """Return perturbed images: away from the labels, or toward them in a targeted attack."""

    def __call__(
        self,
        model: nn.Module,
        images: Tensor,
        labels: Tensor,
        *,
        epsilon: float | None = None,
        logits: str = STRONGEST,
        seed: int = 0,
        budget: int | None = None,
        bounds: Bounds = UNIT,
        preprocessing: Preprocessing = None,
    ) -> AttackResult:
        epsilon = self.epsilon if epsilon is None else epsilon
        if epsilon is None:
            raise TorchcapsError(f"{type(self).__name__} needs an epsilon: give it to the attack or to the call")
        check_images(images, labels, epsilon, bounds)
        if self.norm.name == "linf" and epsilon > bounds[1] - bounds[0]:
            raise TorchcapsError(
                f"epsilon must be at most {bounds[1] - bounds[0]:g}, the range of the pixels, got {epsilon:g}: for "
                "pixels in [0, 1], write 8/255 instead of 8"
            )
        classifier = as_classifier(model, images[:1], bounds, preprocessing)
        check_model(classifier, images, labels)
        device = model_device(classifier, images)
        states, title = [], f"{type(self).__name__} {epsilon:.3g}"
        with frozen_eval(classifier, seed), progress_bar(title, len(images)) as advance:
            views = self.views(classifier, images[:BATCH].to(device), logits)
            for part in chunks(len(images), len(images) if self.all_images else BATCH):
                batch, truth = images[part].to(device), labels[part].long().to(device)
                clean = predict_labels(classifier, batch)
                state = AttackState(classifier, batch, truth, epsilon, bounds, views, QueryBudget(budget), clean)
                self._attack_targets(state) if self.targeted else self._attack_labels(state)
                states.append(state)
                advance(len(batch))
        return merge_results(states, logits, images.device)

    @torch.no_grad()
    def views(self, model: Model, images: Tensor, logits: str) -> list[LogitsView]:
        """Return the views through which the model is attacked, in this order."""
        views = select_views(logits, model(images))
        return views if self.all_views else views[:1]

    def _attack_labels(self, state: AttackState) -> None:
        state.adversarial, state.predictions = self._attack(state, state.labels, state.clean == state.labels)

    def _attack_targets(self, state: AttackState) -> None:
        """Try every wrong class as target; keep the image of the first target that causes a misclassification."""
        adversarial, predictions = state.images, state.clean
        state.hits = torch.zeros(len(adversarial), state.model.classes, dtype=torch.bool, device=adversarial.device)
        state.targets = torch.zeros_like(state.hits)
        for target in range(state.model.classes):
            wrong = state.labels != target
            goal = torch.full_like(state.labels, target)
            state.targets[:, target] = wrong & (state.clean != target)
            candidates, classified = self._attack(state, goal, state.targets[:, target])
            state.hits[:, target] = state.targets[:, target] & (classified == target)
            replace = wrong & (predictions == state.labels)
            adversarial = torch.where(replace[:, None, None, None], candidates, adversarial)
            predictions = torch.where(replace, classified, predictions)
        state.adversarial, state.predictions = adversarial, predictions

    def _attack(self, state: AttackState, goal: Tensor, attacked: Tensor) -> tuple[Tensor, Tensor]:
        """Attack the marked images through each view until the goal is reached; return images and predictions."""
        adversarial, predictions, active = state.images.clone(), state.clean.clone(), attacked.nonzero().squeeze(1)
        for view in state.views:
            if not len(active) or state.budget.remaining < 1:
                break
            wrapper = ModelWrapper(
                state.model, view, state.budget, bounds=state.bounds, targeted=self.targeted, history=state.history
            )
            try:
                perturbed = self.perturb(wrapper, state.images[active], goal[active], state.epsilon)
            except BudgetExhausted:
                break
            clipped = self.norm.clip(perturbed, state.images[active], state.epsilon, state.bounds)
            adversarial[active] = clipped.detach()
            predictions[active] = predict_labels(state.model, adversarial[active])
            reached = (predictions[active] == goal[active]) == self.targeted
            state.reached_by_view[view.name] += int(reached.sum())
            active = active[~reached]
        return adversarial, predictions


def check_images(images: Tensor, labels: Tensor, epsilon: float, bounds: Bounds) -> None:
    """Refuse images, labels and settings with which no attack gives a meaningful result."""
    if labels.ndim == 2:
        raise TorchcapsError(
            f"an attack needs one label per image, got {labels.shape[1]}: datasets of overlaid objects, such as "
            "multimnist, cannot be attacked"
        )
    if images.ndim != 4 or not images.is_floating_point():
        raise TorchcapsError(f"expected images as floats (B, C, H, W), got {images.dtype} {tuple(images.shape)}")
    if not len(images) or labels.shape != images.shape[:1]:
        raise TorchcapsError(
            f"expected at least one image and as many labels as images, got {len(images)} images and labels of shape "
            f"{tuple(labels.shape)}"
        )
    low, high = bounds
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise TorchcapsError(f"bounds must be two finite numbers (low, high) with low < high, got {bounds}")
    smallest, largest = images.min().item(), images.max().item()
    if not (low <= smallest <= largest <= high):  # also where a pixel is NaN
        raise TorchcapsError(
            f"pixels must lie in [{low:g}, {high:g}], got {smallest:.3g} to {largest:.3g}: give images before "
            "normalization, and normalize within the model or by preprocessing="
        )
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise TorchcapsError(f"epsilon must be finite and at least 0, in the units of the pixels, got {epsilon}")


def check_model(model: Model, images: Tensor, labels: Tensor) -> None:
    """Refuse images and labels that the model was not built for."""
    if tuple(images.shape[1:]) != model.image_shape:
        raise TorchcapsError(
            f"the model takes images (C, H, W) = {model.image_shape}, got a batch of shape {tuple(images.shape)}"
        )
    if not 0 <= int(labels.min()) <= int(labels.max()) < model.classes:
        raise TorchcapsError(
            f"labels run from {int(labels.min())} to {int(labels.max())}, but the model has {model.classes} classes, "
            "counted from 0"
        )


@torch.no_grad()
def predict_labels(model: Model, images: Tensor) -> Tensor:
    """Return the predicted class of each image, (B,)."""
    return torch.cat([model(images[part]).scores.argmax(1) for part in chunks(len(images), BATCH)])


@dataclass(frozen=True)
class AttackRecord:
    """A registered attack. ``build`` takes its settings as keyword arguments, ``epsilon`` and ``norm`` among them."""

    name: str
    description: str
    paper: str
    build: type[Attack]
    white_box: bool = True  # uses gradients of the attacked model
    needs_source: bool = False  # needs another trained model
    needs_capsules: bool = False  # attacks the votes of class capsules
    extra: str = ""  # the optional dependencies to install: pip install -e '.[extra]'

    @property
    def norms(self) -> tuple[str, ...]:
        return self.build.norms

    @property
    def targeted(self) -> bool:
        return self.build.targeted


attacks: Registry[AttackRecord] = Registry("attack")


def create_attack(name: str, **options: Any) -> Attack:
    """Build a registered attack by name.

    >>> create_attack("bim", norm="l2", steps=5).norm.name
    'l2'
    """
    record = attacks.get(name)
    try:
        return record.build(**options)
    except TypeError as error:
        raise wrong_settings("attack", name, record.build, options, error) from error
