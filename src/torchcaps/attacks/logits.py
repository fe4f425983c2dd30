"""Views of a model's output: which logits an attack follows.

The length of a capsule saturates below one, which hides the gradient, so a capsule network has several sensible logits.
They are registered here by name, and every result records which were used.
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
# Scores are shrunk this much toward the middle before taking a logarithm. Clamping them would set the gradient of every
# saturated capsule to zero.
MARGIN = 1e-6


@dataclass(frozen=True)
class LogitsView:
    """A way to compute logits (B, classes) from a model's output."""

    name: str
    description: str
    read: Callable[[Output], Tensor]
    bounded: bool = False  # needs scores in [0, 1]


def _atanh(output: Output) -> Tensor:
    return torch.atanh(output.scores.clamp(0, 1) * (1 - MARGIN))


def _log_odds(output: Output) -> Tensor:
    return torch.logit(output.scores.clamp(0, 1) * (1 - 2 * MARGIN) + MARGIN)


logits_views: Registry[LogitsView] = Registry("logits")
logits_views.add(LogitsView("logits", "the model's own logits", lambda output: output.logits))
logits_views.add(LogitsView("log-odds", "log s / (1 - s) of the scores", _log_odds, bounded=True))
logits_views.add(LogitsView("atanh", "inverse hyperbolic tangent of the scores", _atanh, bounded=True))
logits_views.add(LogitsView("scores", "class scores: capsule lengths or probabilities", lambda output: output.scores))
# atanh comes first: the log-odds of lengths near 0 and near 1 are so far apart that rounding leaves the cross-entropy
# without a gradient, and atanh grows that steeply at one end only.
VIEWS_OF_LENGTHS = ("atanh", "log-odds", "scores")
VIEWS_OF_LOGITS = ("logits", "scores")


def select_views(name: str, output: Output) -> list[LogitsView]:
    """Return the view of that name, or for ``strongest`` all views that fit the model, the most effective first.

    For capsule lengths and activations these are atanh, log-odds and the scores themselves; for a softmax or sigmoid
    its logits and the scores.

    Args:
        name: ``strongest`` or the name of a view.
        output: the model's output for clean images, by which the fitting views are found.
    """
    if name == STRONGEST:
        # Logits that the model computes from its scores are clamped; the views here are not. Where the scores are
        # computed from the logits instead, the logits hold more information than the scores.
        from_lengths = torch.equal(output.logits, log_odds(output.scores))
        return [logits_views.get(each) for each in (VIEWS_OF_LENGTHS if from_lengths else VIEWS_OF_LOGITS)]
    if name not in logits_views:
        raise unknown_name("logits", name, [STRONGEST, *logits_views.names()])
    view, highest = logits_views.get(name), output.scores.max().item()
    if view.bounded and highest > 1:
        raise TorchcapsError(
            f"logits '{name}' need scores in [0, 1], but this model's scores reach {highest:.3g}: "
            "use 'logits' or 'scores'"
        )
    return [view]
