"""Which numbers of a model an attack climbs on: its views.

A capsule's length saturates below one and hides the gradient, so "the logits" of a capsule network are a choice. It is
made here by name, and every result says which was used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.functional import log_odds
from torchcaps.models import Output
from torchcaps.registry import Registry

STRONGEST = "strongest"
# Scores are drawn this much towards the middle before a logarithm is taken of them. Cutting them off instead would
# set the gradient of every saturated capsule to zero.
MARGIN = 1e-6


@dataclass(frozen=True)
class View:
    """One way to read logits (B, classes) out of a model's answer."""

    name: str
    description: str
    read: Callable[[Output], Tensor]
    bounded: bool = False  # makes sense only where scores lie in [0, 1]


def _atanh(output: Output) -> Tensor:
    return torch.atanh(output.scores.clamp(0, 1) * (1 - MARGIN))


def _log_odds(output: Output) -> Tensor:
    return torch.logit(output.scores.clamp(0, 1) * (1 - 2 * MARGIN) + MARGIN)


# In the order in which they are tried: the most telling first.
views: Registry[View] = Registry("logits")
views.add(View("logits", "the model's own logits", lambda output: output.logits))
views.add(View("log-odds", "log s / (1 - s) of the scores", _log_odds, bounded=True))
views.add(View("atanh", "inverse hyperbolic tangent of the scores", _atanh, bounded=True))
views.add(View("scores", "class scores: capsule lengths or probabilities", lambda output: output.scores))


def choose_views(name: str, answers: Output) -> list[View]:
    """The views of that name; for ``strongest`` all that fit the model and differ, the most telling first.

    Args:
        name: ``strongest`` or one of the views.
        answers: the model's answer to clean images, by which is seen what fits.
    """
    lowest, highest = answers.scores.min().item(), answers.scores.max().item()
    fits = 0 <= lowest <= highest <= 1
    if name != STRONGEST:
        if name not in views:
            known = ", ".join([STRONGEST, *views.names()])
            raise TorchcapsError(f"logits '{name}' are unknown: choose one of {known}")
        if views.get(name).bounded and not fits:
            raise TorchcapsError(
                f"logits '{name}' need scores in [0, 1], and this model's reach {highest:.3g}: use 'logits' or 'scores'"
            )
        return [views.get(name)]
    chosen = [view for view in views if fits or not view.bounded]
    # Trying two views that are one would be trying it twice. Where a model's own logits are made from its scores, they
    # are cut off at the ends and the view is not; where scores are made from logits, those know more.
    made_from_scores = log_odds(answers.scores)
    if fits and torch.equal(answers.logits, made_from_scores):
        chosen.remove(views.get("logits"))
    elif fits and torch.allclose(answers.logits, made_from_scores, rtol=1e-2, atol=1e-2):
        chosen.remove(views.get("log-odds"))
    return chosen
