"""The result of an attack, and the state of a batch while it is attacked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from torchcaps.attacks.logits import LogitsView
from torchcaps.attacks.model_wrapper import Bounds, QueryBudget
from torchcaps.models import Model


@dataclass(frozen=True)
class AttackResult:
    """The clipped adversarial images and how the model classifies them.

    Attributes:
        images: (B, C, H, W), within epsilon and the bounds of the pixels.
        success: (B,), whether the image is misclassified; True also if it was before the attack.
        predictions: (B,), the predicted classes of ``images``.
        queries: how many images were sent through the model.
        logits: the logits that were asked for.
        by_view: how many images reached the goal through each view of the logits.
        hits: (B, classes) in a targeted attack, whether each wrong class was reached when it was the target.
        targets: (B, classes) in a targeted attack, the targets that were tried: all classes but the image's own and
            the one predicted before the attack.
        history: accuracy by iteration, for attacks that are trained.
    """

    images: Tensor
    success: Tensor
    predictions: Tensor
    queries: int
    logits: str
    by_view: dict[str, int]
    hits: Tensor | None = None
    targets: Tensor | None = None
    history: dict[int, float] = field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """Accuracy under attack; images that were misclassified before it count as errors."""
        return 1 - self.success.double().mean().item()


@dataclass
class AttackState:
    """A batch under attack: the input, and what was found so far."""

    model: Model
    images: Tensor
    labels: Tensor
    epsilon: float
    bounds: Bounds
    views: list[LogitsView]
    budget: QueryBudget
    clean: Tensor  # predictions before the attack
    adversarial: Tensor = field(init=False)
    predictions: Tensor = field(init=False)  # of the adversarial images
    hits: Tensor | None = None
    targets: Tensor | None = None
    reached_by_view: Counter[str] = field(default_factory=Counter)
    history: dict[int, float] = field(default_factory=dict)  # accuracy on the images that are attacked

    def overall_history(self) -> dict[int, float]:
        """Accuracy by iteration over all images, including those that were misclassified before the attack."""
        correct = (self.clean == self.labels).double().mean().item()
        return {iteration: correct * accuracy for iteration, accuracy in self.history.items()}


def merge_results(states: Sequence[AttackState], logits: str, device: torch.device) -> AttackResult:
    """Combine the batches of an attack into one result."""
    hits = [state.hits for state in states if state.hits is not None]
    targets = [state.targets for state in states if state.targets is not None]
    return AttackResult(
        images=torch.cat([state.adversarial for state in states]).to(device),
        success=torch.cat([state.predictions != state.labels for state in states]).to(device),
        predictions=torch.cat([state.predictions for state in states]).to(device),
        queries=sum(state.budget.queries for state in states),
        logits=logits,
        by_view={view.name: sum(state.reached_by_view[view.name] for state in states) for view in states[0].views},
        hits=torch.cat(hits).to(device) if hits else None,
        targets=torch.cat(targets).to(device) if targets else None,
        history=states[0].overall_history(),
    )
