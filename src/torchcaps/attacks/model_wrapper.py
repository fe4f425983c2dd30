"""What an attack may see of a model, with every look counted."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.attacks.logits import View
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model, Output


class BudgetExhausted(Exception):  # noqa: N818  (not a mistake: the attack ends here)
    """No pass of the model is left."""


@dataclass
class QueryBudget:
    """How often a batch may still be sent through the model, and how often images were."""

    limit: int | None = None
    passes: int = 0
    queries: int = 0  # passes, each counted once for every image in it

    @property
    def left(self) -> int:
        return sys.maxsize if self.limit is None else self.limit - self.passes

    def spend(self, images: int) -> None:
        if self.left < 1:
            raise BudgetExhausted
        self.passes += 1
        self.queries += images


class ModelWrapper:
    """A model seen through one view of its logits.

    Args:
        model: the model under attack, or the one on which a transferred attack is made.
        view: how logits are read out of its answer.
        budget: what the looks are counted against.
        targeted: labels are where the answer shall go, instead of what it shall leave.
        persistent: never report a goal as reached, so that an attack goes on to its last step.
        history: where an attack that learns notes the accuracy it leaves, by the number of its iterations.
    """

    def __init__(
        self,
        model: Model,
        view: View,
        budget: QueryBudget,
        *,
        targeted: bool = False,
        persistent: bool = False,
        history: dict[int, float] | None = None,
    ) -> None:
        self.model, self.view, self.budget = model, view, budget
        self.targeted, self.persistent = targeted, persistent
        self.history = {} if history is None else history

    @property
    def left(self) -> int:
        """Looks that are left."""
        return self.budget.left

    def query(self, images: Tensor) -> Output:
        """The model's answer, counted."""
        self.budget.spend(len(images))
        output: Output = self.model(images)
        return output

    def gradient(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The direction towards the goal, and which images have reached it already: (B, C, H, W) and (B,).

        That is the gradient of the cross-entropy: away from the labels, or towards them in a targeted attack.
        """
        leaf = images.detach().requires_grad_()
        with torch.enable_grad():
            output = self.query(leaf)
            loss = F.cross_entropy(self.view.read(output), labels, reduction="sum")
            if not loss.requires_grad:
                raise TorchcapsError(
                    f"this {type(self.model).__name__} gives no gradient with respect to its pixels: "
                    "use an attack that asks for scores only, such as square"
                )
            # A model may cut the way back with a constant: that is a gradient of zero.
            (slope,) = torch.autograd.grad(loss, leaf, allow_unused=True)
        towards = torch.zeros_like(images) if slope is None else slope.nan_to_num(0, 0, 0)
        return -towards if self.targeted else towards, self._reached(output, labels)

    @torch.no_grad()
    def margin(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """How far each image is from the goal, below zero once there, and whether it is there: (B,) and (B,)."""
        output = self.query(images)
        logits = self.view.read(output)
        own = logits.gather(1, labels.unsqueeze(1)).squeeze(1)
        best_other = logits.scatter(1, labels.unsqueeze(1), -torch.inf).amax(1)
        lead = own - best_other
        return -lead if self.targeted else lead, self._reached(output, labels)

    def _reached(self, output: Output, labels: Tensor) -> Tensor:
        hit = output.scores.argmax(1) == labels
        reached = hit if self.targeted else ~hit
        return torch.zeros_like(reached) if self.persistent else reached


@contextlib.contextmanager
def frozen_eval(model: Model, seed: int) -> Iterator[None]:
    """Hold a model still: evaluation mode, no gradients for parameters, random numbers from the seed.

    Afterwards the model and the global random state are as they were.
    """
    modes = [(module, module.training) for module in model.modules()]
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        model.eval()
        for parameter in trainable:
            parameter.requires_grad_(False)  # half the work of a backward pass is theirs
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)
        for module, mode in modes:
            module.training = mode
