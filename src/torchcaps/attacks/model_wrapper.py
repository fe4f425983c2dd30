"""What an attack sees of a model: counted queries, gradients and margins, in evaluation mode."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchcaps.attacks.logits import LogitsView
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model, Output

Bounds: TypeAlias = tuple[float, float]  # the smallest and the largest value of a pixel
UNIT: Bounds = (0, 1)
# Applied to pixels before the model: a callable, or (mean, standard deviation) of each channel.
Preprocessing: TypeAlias = Callable[[Tensor], Tensor] | tuple[Sequence[float], Sequence[float]] | None


class BudgetExhausted(Exception):  # noqa: N818  (not an error: the attack stops here)
    """The query budget is used up."""


@dataclass
class QueryBudget:
    """Counts forward passes of a batch against a limit."""

    limit: int | None = None
    passes: int = 0
    queries: int = 0  # images in all passes

    @property
    def remaining(self) -> int:
        return sys.maxsize if self.limit is None else self.limit - self.passes

    def spend(self, images: int) -> None:
        if self.remaining < 1:
            raise BudgetExhausted
        self.passes += 1
        self.queries += images


class ModelWrapper:
    """The attacked model, seen through one view of its logits.

    Args:
        model: the model under attack, or the source model of a transfer attack.
        view: how logits are computed from the model's output.
        budget: counts the queries.
        bounds: the smallest and the largest value of a pixel.
        targeted: labels are the classes to reach instead of the classes to leave.
        stop_early: report the images that have reached the goal, so that an attack can stop there.
        history: where a trained attack stores its accuracy by iteration.
    """

    def __init__(
        self,
        model: Model,
        view: LogitsView,
        budget: QueryBudget,
        *,
        bounds: Bounds = UNIT,
        targeted: bool = False,
        stop_early: bool = True,
        history: dict[int, float] | None = None,
    ) -> None:
        self.model, self.view, self.budget, self.bounds = model, view, budget, bounds
        self.targeted, self.stop_early = targeted, stop_early
        self.history = {} if history is None else history

    @property
    def remaining(self) -> int:
        """Queries that are left in the budget."""
        return self.budget.remaining

    def query(self, images: Tensor) -> Output:
        """Run the model and count the pass."""
        self.budget.spend(len(images))
        output: Output = self.model(images)
        return output

    def gradient(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the direction toward the goal, and which images have reached it: (B, C, H, W) and (B,).

        The direction is the gradient of the cross-entropy, negated in a targeted attack.
        """
        leaf = images.detach().requires_grad_()
        with torch.enable_grad():
            output = self.query(leaf)
            loss = F.cross_entropy(self.view.read(output), labels, reduction="sum")
            if not loss.requires_grad:
                raise TorchcapsError(
                    "the model gives no gradient with respect to its pixels: use an attack that needs scores only, "
                    "such as square"
                )
            # None if the model's output does not depend on the pixels: the gradient is zero.
            (gradient,) = torch.autograd.grad(loss, leaf, allow_unused=True)
        finite = torch.zeros_like(images) if gradient is None else gradient.nan_to_num(0, 0, 0)
        return -finite if self.targeted else finite, self._reached(output, labels)

    @torch.no_grad()
    def margin(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return each image's distance to the goal in logits, negative beyond it, and whether it has reached it."""
        output = self.query(images)
        logits = self.view.read(output)
        own = logits.gather(1, labels.unsqueeze(1)).squeeze(1)
        best_other = logits.scatter(1, labels.unsqueeze(1), -torch.inf).amax(1)
        margin = own - best_other
        return -margin if self.targeted else margin, self._reached(output, labels)

    def _reached(self, output: Output, labels: Tensor) -> Tensor:
        reached = (output.scores.argmax(1) == labels) == self.targeted
        return reached if self.stop_early else torch.zeros_like(reached)


class PlainClassifier(Model):
    """A plain ``nn.Module`` that returns logits, with the interface of a torchcaps model."""

    largest_pixel = math.inf  # its pixels have the bounds that the caller gives

    def __init__(self, network: nn.Module, image_shape: tuple[int, int, int], preprocessing: Preprocessing) -> None:
        super().__init__(image_shape, classes=0)
        self.network = network
        self.apply_preprocessing = _preprocessing_function(preprocessing, channels=image_shape[0])

    def classify(self, images: Tensor) -> Output:
        logits = self.network(self.apply_preprocessing(images))
        return Output(logits.softmax(1), logits)


def as_classifier(model: nn.Module, images: Tensor, bounds: Bounds, preprocessing: Preprocessing) -> Model:
    """Return a torchcaps model itself, and any other module as a :class:`PlainClassifier`.

    Args:
        model: a torchcaps model, or a module that returns logits (B, classes).
        images: at least one image, by which the number of classes is found.
        bounds, preprocessing: as in :class:`torchcaps.attacks.Attack`.
    """
    if isinstance(model, Model):
        if tuple(bounds) != UNIT or preprocessing is not None:
            raise TorchcapsError(
                "a torchcaps model takes pixels in [0, 1] and preprocesses them itself: "
                "leave out bounds and preprocessing"
            )
        return model
    if not isinstance(model, nn.Module):
        raise TorchcapsError(f"an attack needs a torch.nn.Module, got {type(model).__name__}")
    channels, height, width = images.shape[1:]
    classifier = PlainClassifier(model, (channels, height, width), preprocessing)
    with torch.no_grad(), frozen_eval(classifier, seed=0):
        logits = model(classifier.apply_preprocessing(images.to(model_device(model, images))))
    if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(images) or logits.shape[1] < 2:
        found = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise TorchcapsError(
            f"an attack needs a model that returns logits (B, classes) of at least 2 classes, {type(model).__name__} "
            f"returned {found} for a batch of {len(images)}: wrap it in a module that returns the logits alone"
        )
    classifier.classes = logits.shape[1]
    return classifier


def model_device(model: nn.Module, images: Tensor) -> torch.device:
    """Return the device of the model's weights, or of the images if it has none."""
    return next((each.device for each in (*model.parameters(), *model.buffers())), images.device)


def _preprocessing_function(preprocessing: Preprocessing, channels: int) -> Callable[[Tensor], Tensor]:
    if preprocessing is None:
        return nn.Identity()
    if callable(preprocessing):
        return preprocessing
    try:
        mean, std = (torch.as_tensor(values, dtype=torch.float64).view(-1, 1, 1) for values in preprocessing)
    except (TypeError, ValueError) as error:
        raise TorchcapsError(
            f"preprocessing must be a callable or (mean, standard deviation) of each channel, got {preprocessing!r}"
        ) from error
    finite = torch.cat([mean, std]).isfinite().all()
    if not ({len(mean), len(std)} <= {1, channels} and finite and (std > 0).all()):
        raise TorchcapsError(
            f"preprocessing needs a finite mean and a standard deviation above 0 for each of {channels} channels, "
            f"got {preprocessing!r}"
        )
    return lambda images: (images - mean.to(images)) / std.to(images)


@contextlib.contextmanager
def frozen_eval(model: nn.Module, seed: int) -> Iterator[None]:
    """Put a model into evaluation mode without gradients for its parameters, and seed the random numbers.

    Afterward the model and the global random state are restored.
    """
    modes = [(module, module.training) for module in model.modules()]
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        model.eval()
        for parameter in trainable:
            parameter.requires_grad_(False)  # saves half of the backward pass
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)
        for module, mode in modes:
            module.training = mode
