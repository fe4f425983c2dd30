"""Which numbers of a model an attack climbs on: its views.

A capsule's length saturates below one and hides the gradient, so "the logits" of a capsule network are a choice. It is
made here by name, and every result says which was used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.errors import TorchcapsError, unknown_name
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


views: Registry[View] = Registry("logits")
views.add(View("logits", "the model's own logits", lambda output: output.logits))
views.add(View("log-odds", "log s / (1 - s) of the scores", _log_odds, bounded=True))
views.add(View("atanh", "inverse hyperbolic tangent of the scores", _atanh, bounded=True))
views.add(View("scores", "class scores: capsule lengths or probabilities", lambda output: output.scores))
# Log-odds of a length of 0 against one of 1 lie so far apart that rounding leaves the cross-entropy no gradient; atanh
# grows that steeply at one end only.
OF_LENGTHS = ("atanh", "log-odds", "scores")
OF_LOGITS = ("logits", "scores")


def select_views(name: str, answers: Output) -> list[View]:
    """The views of that name; for ``strongest`` all that fit the model and differ, the most telling first.

    For lengths and activations these are their atanh, their log-odds and themselves; for a softmax or sigmoid the
    logits that went into it, and the scores.

    Args:
        name: ``strongest`` or one of the views.
        answers: the model's answer to clean images, by which is seen what fits.
    """
    if name == STRONGEST:
        # Own logits that are made from the scores are cut off at their ends, which the views here are not. Where scores
        # are made from logits instead, those know more than anything that can be made of the scores.
        of_lengths = torch.equal(answers.logits, log_odds(answers.scores))
        return [views.get(each) for each in (OF_LENGTHS if of_lengths else OF_LOGITS)]
    if name not in views:
        raise unknown_name("logits", name, [STRONGEST, *views.names()])
    highest = answers.scores.max().item()
    if views.get(name).bounded and highest > 1:
        raise TorchcapsError(
            f"logits '{name}' need scores in [0, 1], and this model's reach {highest:.3g}: use 'logits' or 'scores'"
        )
    return [views.get(name)]
