r"""Adversarial training: the loss is computed on images that are perturbed against the current weights.

Madry et al.: Towards Deep Learning Models Resistant to Adversarial Attacks, 2018,
https://arxiv.org/abs/1706.06083 (PGD).
Zhang et al.: Theoretically Principled Trade-off between Robustness and Accuracy, 2019,
https://arxiv.org/abs/1901.08573 (TRADES).

.. math::
    \text{PGD:}\quad \max_{|\delta|_\infty \le \epsilon} L(x + \delta, y), \qquad
    \text{TRADES:}\quad L(x, y) +
    \beta \max_{|\delta|_\infty \le \epsilon} \mathrm{KL}\big(p(x) \,\|\, p(x + \delta)\big)

Perturbations are made in evaluation mode, in steps of 2.5 epsilon / steps from a random start.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.models import Model

WRITTEN = {
    "pgd": "pgd:EPSILON:STEPS, the loss on perturbed images only",
    "trades": "trades:EPSILON:STEPS:BETA, the loss on clean images plus BETA times the divergence on perturbed ones",
}
MOST_STEPS = 1000  # settings may come from an untrusted file
START = 0.001  # standard deviation of the random start of TRADES, where the divergence of clean images has no gradient


@dataclass(frozen=True)
class AdversarialTraining:
    """How images are perturbed in training.

    Args:
        name: ``pgd`` or ``trades``.
        epsilon: the largest change of a pixel.
        steps: gradient steps for each batch; training takes about steps + 1 times as long.
        beta: weight of the divergence, for TRADES.
    """

    name: str
    epsilon: float
    steps: int
    beta: float = 0.0

    def perturb(self, model: Model, images: Tensor, labels: Tensor, jitter: Tensor | None = None) -> Tensor:
        """Return perturbed images within epsilon and [0, 1]; the model keeps its mode and gets no gradients."""
        was_training = model.training
        model.eval()
        with torch.no_grad():
            clean = model(images, check_finite=False, jitter=jitter).logits.log_softmax(1)
        if self.name == "trades":
            moved = images + START * torch.randn_like(images)
        else:
            moved = images + self.epsilon * (2 * torch.rand_like(images) - 1)
        moved = self._clip(moved, images)
        for _ in range(self.steps):
            leaf = moved.detach().requires_grad_()
            with torch.enable_grad():
                logits = model(leaf, check_finite=False, jitter=jitter).logits
                (gradient,) = torch.autograd.grad(self._distance(clean, logits, labels), leaf)
            step = 2.5 * self.epsilon / self.steps * gradient.nan_to_num(0, 0, 0).sign()
            moved = self._clip(moved + step, images)
        model.train(was_training)
        return moved.detach()

    def divergence(self, clean: Tensor, logits: Tensor) -> Tensor:
        """KL divergence of the perturbed images' distributions from the clean ones, averaged over the batch."""
        return F.kl_div(logits.log_softmax(1), clean.log_softmax(1), log_target=True, reduction="batchmean")

    def _distance(self, clean: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        if self.name == "trades":
            return F.kl_div(logits.log_softmax(1), clean, log_target=True, reduction="sum")
        return F.cross_entropy(logits, labels, reduction="sum")

    def _clip(self, moved: Tensor, images: Tensor) -> Tensor:
        return images + (moved.clamp(0, 1) - images).clamp(-self.epsilon, self.epsilon)


def parse_adversarial(text: str) -> AdversarialTraining:
    """Parse adversarial training as the config of a run holds it.

    >>> parse_adversarial("trades:0.1:5:6")
    AdversarialTraining(name='trades', epsilon=0.1, steps=5, beta=6.0)
    """
    name, *values = text.split(":")
    if name not in WRITTEN:
        raise unknown_name("adversarial training", name, WRITTEN)
    try:
        epsilon, steps, beta = float(values[0]), int(values[1]), float(values[2]) if name == "trades" else 0.0
    except (ValueError, IndexError):
        epsilon, steps, beta = 0.0, 0, 0.0
    count = 3 if name == "trades" else 2
    if len(values) != count or not (0 < epsilon <= 1 and 1 <= steps <= MOST_STEPS and 0 <= beta < float("inf")):
        raise TorchcapsError(
            f"adversarial training '{text}' should be written as {WRITTEN[name]}, with an epsilon in (0, 1] and 1 to "
            f"{MOST_STEPS} steps"
        )
    return AdversarialTraining(name, epsilon, steps, beta)
