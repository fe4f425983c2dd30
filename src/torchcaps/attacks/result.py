"""What comes out of an attack."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import torch
from torch import Tensor

from torchcaps.attacks.logits import View
from torchcaps.attacks.model_wrapper import QueryBudget
from torchcaps.models import Model


@dataclass(frozen=True)
class AttackResult:
    """The outcome of an attack, all of it about the clipped images.

    Shapes: ``images`` (B, C, H, W), within epsilon and [0, 1]; ``success`` (B,), the answer is wrong, be it since the
    attack or before it; ``predictions`` (B,); ``hits`` (B, classes) in a targeted attack, which wrong class was reached
    when it was the target.

    ``logits`` is what was asked for, ``by_view`` how many images each view has moved to the goal, ``queries`` how many
    times an image was sent through the model. ``history`` is the accuracy by iteration, for an attack that learns.
    """

    images: Tensor
    success: Tensor
    predictions: Tensor
    queries: int
    logits: str
    by_view: dict[str, int]
    hits: Tensor | None = None
    history: dict[int, float] = field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """Share of right answers under the attack; what was wrong before it counts as wrong."""
        return 1 - self.success.double().mean().item()


@dataclass
class AttackState:
    """One batch under attack."""

    model: Model
    images: Tensor
    labels: Tensor
    epsilon: float
    views: list[View]
    budget: QueryBudget
    clean: Tensor  # what the model answers before
    broken: Counter[str] = field(default_factory=Counter)
    history: dict[int, float] = field(default_factory=dict)  # accuracy on the images that are attacked

    def overall_history(self) -> dict[int, float]:
        """The same on all images: what was wrong before the attack is wrong throughout."""
        right = (self.clean == self.labels).double().mean().item()
        return {iteration: right * accuracy for iteration, accuracy in self.history.items()}


@dataclass(frozen=True)
class BatchResult:
    """The outcome for one batch."""

    moved: Tensor
    success: Tensor
    answers: Tensor
    hits: Tensor | None
    state: AttackState


def merge_results(parts: list[BatchResult], logits: str, device: torch.device) -> AttackResult:
    """All batches as one result."""
    hits = [part.hits for part in parts if part.hits is not None]
    return AttackResult(
        images=torch.cat([part.moved for part in parts]).to(device),
        success=torch.cat([part.success for part in parts]).to(device),
        predictions=torch.cat([part.answers for part in parts]).to(device),
        queries=sum(part.state.budget.queries for part in parts),
        logits=logits,
        by_view={view.name: sum(part.state.broken[view.name] for part in parts) for view in parts[0].state.views},
        hits=torch.cat(hits).to(device) if hits else None,
        history=parts[0].state.overall_history(),
    )
