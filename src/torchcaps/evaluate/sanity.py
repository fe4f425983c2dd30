"""Sanity checks that accompany every accuracy under attack.

After Carlini et al.: On evaluating adversarial robustness, 2019, https://arxiv.org/abs/1902.06705, and Athalye,
Carlini, Wagner: Obfuscated gradients give a false sense of security, 2018, https://arxiv.org/abs/1802.00420.
hinton2018 (section 6) reports the zeros in the gradient, and its size relative to a CNN's, for the same reason.

Each check returns a warning or None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.attacks import STRONGEST, LogitsView, attacks, create_attack
from torchcaps.attacks.logits import select_views
from torchcaps.attacks.model_wrapper import frozen_eval
from torchcaps.attacks.norms import NORMS
from torchcaps.errors import TorchcapsError
from torchcaps.models import Model

ZEROS = 0.5  # a larger fraction of exact zeros in the input gradient is a sign of gradient masking
BLIND = 0.01  # and so is a larger fraction of images whose whole gradient is zero
FADED = 1e-3  # and so is a gradient smaller than this fraction of the reference (hinton2018 measured 1/100)
LEFT_AT_HUGE = 0.05  # tolerated accuracy at an epsilon that allows any image
NOISE = 1e-6  # tolerated difference between scores of the same images
LEAD = 0.01  # tolerated accuracy by which a black-box attack is stronger than all white-box attacks


@dataclass(frozen=True)
class SanityWarning:
    """A failed check and what it means for the measured accuracy."""

    name: str
    message: str


@dataclass(frozen=True)
class GradientMeasure:
    """The gradient of the cross-entropy for clean images.

    ``zeros`` and ``norm`` are measured at the input of the network, after its preprocessing: standardization spreads
    the gradient of one pixel over the whole image, so that no gradient by the pixels is exactly zero. ``zeros`` is the
    fraction of elements that are exactly zero and ``norm`` the mean L2 norm per image, both through the first view of
    the logits. ``blind`` is the fraction of images whose gradient by the pixels is zero through every view.
    """

    zeros: float
    norm: float
    blind: float


def measure_gradient(model: Model, images: Tensor, labels: Tensor, logits: str = STRONGEST) -> GradientMeasure:
    """Measure the input gradient of these images; a model without gradient counts as all zeros."""
    with frozen_eval(model, seed=0):
        with torch.no_grad():
            views = select_views(logits, model(images))
        gradients = [_gradients(model, view, images, labels) for view in views]
    at_input = gradients[0][1].double()
    by_pixels = torch.stack([pixels for pixels, _ in gradients])  # (views, B, C, H, W)
    return GradientMeasure(
        zeros=(at_input == 0).double().mean().item(),
        norm=NORMS["l2"].size(at_input).mean().item(),
        blind=(by_pixels == 0).flatten(2).all(2).all(0).double().mean().item(),
    )


def _gradients(model: Model, view: LogitsView, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient by the pixels, and by the input of the network after the model's preprocessing."""
    pixels = images.detach().requires_grad_()
    with torch.enable_grad():
        at_input = model.preprocess(pixels)
        at_input = at_input if at_input.requires_grad else at_input.requires_grad_()
        loss = F.cross_entropy(view.read(model.classify(model.backbone(at_input))), labels, reduction="sum")
        found = torch.autograd.grad(loss, [pixels, at_input], allow_unused=True) if loss.requires_grad else (None, None)
    # None where the loss does not depend on it: the gradient is zero.
    by_pixels, by_input = (torch.zeros_like(images) if each is None else each.nan_to_num(0, 0, 0) for each in found)
    return by_pixels, by_input


def check_gradient(measured: GradientMeasure, reference: GradientMeasure | None = None) -> SanityWarning | None:
    """Warn of gradients that are mostly zero or far smaller than those of a plain network: gradient masking."""
    if measured.zeros > ZEROS and (reference is None or measured.zeros > reference.zeros):
        return SanityWarning(
            "masked gradient",
            f"{measured.zeros:.0%} of the input gradient is exactly zero: gradient-based attacks cannot use it",
        )
    if measured.blind > BLIND:
        return SanityWarning(
            "masked gradient",
            f"{measured.blind:.0%} of the images have an input gradient of zero, so gradient-based attacks cannot work",
        )
    if reference is not None and measured.norm < FADED * reference.norm:
        return SanityWarning(
            "masked gradient",
            f"the input gradient is {reference.norm / max(measured.norm, 1e-300):.0e} times smaller than the "
            "reference's: gradient-based attacks may be limited by rounding",
        )
    return None


def check_random(model: Model, images: Tensor) -> SanityWarning | None:
    """Warn of random outputs, which make the direction of a gradient random."""
    with torch.no_grad(), frozen_eval(model, seed=0):
        difference = (model(images).scores - model(images).scores).abs().max().item()
    if difference > NOISE:
        return SanityWarning(
            "random outputs", f"the same images get scores that differ by {difference:.2g} the second time"
        )
    return None


def check_huge_epsilon(
    model: Model, images: Tensor, labels: Tensor, *, norm: str = "linf", logits: str = STRONGEST, seed: int = 0
) -> SanityWarning | None:
    """Warn if images are classified correctly at an epsilon that allows any image: the attack does not work."""
    huge = 1.0 if norm == "linf" else math.sqrt(images[0].numel())  # from black to white in every pixel
    try:
        result = create_attack("bim", norm=norm)(model, images, labels, epsilon=huge, logits=logits, seed=seed)
    except TorchcapsError as error:
        return SanityWarning("huge epsilon", f"could not be checked: {error}")
    if result.accuracy > LEFT_AT_HUGE:
        return SanityWarning(
            "huge epsilon",
            f"{result.accuracy:.0%} is still classified correctly at epsilon {huge:.3g}, which allows any image: "
            "the attack fails",
        )
    return None


def check_black_box(rows: Sequence[dict[str, object]]) -> list[SanityWarning]:
    """Warn if a black-box attack is stronger than all white-box attacks; rows as in :func:`attack_model`."""
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
