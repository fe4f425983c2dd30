"""Is a robustness figure to be believed? Checks that go with every one.

After Carlini et al.: On evaluating adversarial robustness, 2019, https://arxiv.org/abs/1902.06705, and Athalye,
Carlini, Wagner: Obfuscated gradients give a false sense of security, 2018, https://arxiv.org/abs/1802.00420.
hinton2018 (section 6) reports the zeros in the gradient and its size against a CNN's for the same reason.

Each check gives a named warning or None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.attacks import STRONGEST, attacks, create_attack
from torchcaps.attacks.logits import select_views
from torchcaps.attacks.model_wrapper import ModelWrapper, QueryBudget, frozen_eval
from torchcaps.attacks.norms import NORMS
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model

ZEROS = 0.5  # a larger share of exact zeros in the input gradient is a sign of masking
BLIND = 0.01  # and so is a share of images for which all of it is zero
FADED = 1e-3  # and so is a gradient that much smaller than the reference's (hinton2018 found a hundredth, and none)
LEFT_AT_HUGE = 0.05
NOISE = 1e-6  # answers of the same images may differ by this much
LEAD = 0.01  # accuracy by which a black-box attack may beat the white-box ones: a few images


@dataclass(frozen=True)
class SanityWarning:
    """A check that failed, and what that means for the figure."""

    name: str
    message: str


@dataclass(frozen=True)
class GradientMeasure:
    """The gradient of the cross-entropy with respect to pixels, over images as they are.

    ``zeros`` is the share of its numbers that are exactly zero, ``norm`` its mean Euclidean length per image, both
    through the first view of the logits; ``blind`` is the share of images whose gradient is zero everywhere through
    every view.
    """

    zeros: float
    norm: float
    blind: float


def measure_gradient(model: Model, images: Tensor, labels: Tensor, logits: str = STRONGEST) -> GradientMeasure:
    """Measure the gradient that an attack on these images starts from; all zeros where the model gives none."""
    with frozen_eval(model, seed=0):
        with torch.no_grad():
            views = select_views(logits, model(images))
        try:
            gradients = [ModelWrapper(model, view, QueryBudget()).gradient(images, labels)[0] for view in views]
        except TorchcapsError:
            return GradientMeasure(zeros=1.0, norm=0.0, blind=1.0)
    zeros = torch.stack(gradients) == 0  # (views, B, C, H, W)
    return GradientMeasure(
        zeros=zeros[0].double().mean().item(),
        norm=NORMS["l2"].size(gradients[0].double()).mean().item(),
        blind=zeros.flatten(2).all(2).all(0).double().mean().item(),
    )


def check_gradient(measured: GradientMeasure, reference: GradientMeasure | None = None) -> SanityWarning | None:
    """Gradients that are mostly zero, or far smaller than a plain network's, hide the way to adversarial images."""
    if measured.zeros > ZEROS and (reference is None or measured.zeros > reference.zeros):
        return SanityWarning(
            "masked gradient",
            f"{measured.zeros:.0%} of the input gradient is exactly zero: attacks that follow it see nothing there",
        )
    if measured.blind > BLIND:
        return SanityWarning(
            "masked gradient",
            f"{measured.blind:.0%} of the images have no input gradient at all: an attack that follows it leaves them",
        )
    if reference is not None and measured.norm < FADED * reference.norm:
        return SanityWarning(
            "masked gradient",
            f"the input gradient is {reference.norm / max(measured.norm, 1e-300):.0e} times smaller than the "
            "reference's: attacks that follow it may be lost in rounding",
        )
    return None


def check_random(model: Model, images: Tensor) -> SanityWarning | None:
    """A model that answers otherwise the second time makes a gradient's direction a matter of luck."""
    with torch.no_grad(), frozen_eval(model, seed=0):
        apart = (model(images).scores - model(images).scores).abs().max().item()
    if apart > NOISE:
        return SanityWarning("random outputs", f"the same images get scores that differ by {apart:.2g} the second time")
    return None


def check_huge_epsilon(
    model: Model, images: Tensor, labels: Tensor, *, norm: str = "linf", logits: str = STRONGEST, seed: int = 0
) -> SanityWarning | None:
    """With a perturbation that can turn any image into any other, a working attack leaves nothing right."""
    huge = 1.0 if norm == "linf" else math.sqrt(images[0].numel())  # from black to white everywhere
    try:
        result = create_attack("bim", norm=norm)(model, images, labels, epsilon=huge, logits=logits, seed=seed)
    except TorchcapsError as error:
        return SanityWarning("huge epsilon", f"could not be tried: {error}")
    if result.accuracy > LEFT_AT_HUGE:
        return SanityWarning(
            "huge epsilon",
            f"{result.accuracy:.0%} is still right at epsilon {huge:.3g}, where an image can become any other: "
            "the attack fails, not the model holds",
        )
    return None


def check_black_box(rows: Sequence[dict[str, object]]) -> list[SanityWarning]:
    """At each epsilon, who sees less must not do more harm: rows with ``attack``, ``epsilon`` and ``accuracy``."""
    warned = []
    for epsilon in dict.fromkeys(row["epsilon"] for row in rows):
        best: dict[bool, tuple[float, str]] = {}
        for row in rows:
            if row["epsilon"] == epsilon:
                found = (float(str(row["accuracy"])), str(row["attack"]))
                white = attacks.get(found[1]).white_box
                best[white] = min(best.get(white, found), found)
        if len(best) == 2 and best[False][0] < best[True][0] - LEAD:
            warned.append(
                SanityWarning(
                    "black box stronger",
                    f"at epsilon {epsilon:g} {best[False][1]}, which sees no gradient, leaves {best[False][0]:.1%} and "
                    f"{best[True][1]}, which does, {best[True][0]:.1%}: the gradient misleads",
                )
            )
    return warned
