"""Gradient attacks pixel by pixel, the gradient by finite differences: slow, and sharing nothing with the source."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Logits = Callable[[Tensor], Tensor]  # one image (C, H, W) to its logits (classes,)


def cross_entropy(logits: list[float], label: int) -> float:
    highest = max(logits)
    return math.log(sum(math.exp(each - highest) for each in logits)) + highest - logits[label]


def gradient(logits: Logits, image: Tensor, label: int, reach: float = 1e-6) -> Tensor:
    slope = torch.zeros_like(image)
    for place in range(image.numel()):
        losses = []
        for sign in (1, -1):
            nudged = image.clone()
            nudged.view(-1)[place] += sign * reach
            losses.append(cross_entropy(logits(nudged).tolist(), label))
        slope.view(-1)[place] = (losses[0] - losses[1]) / (2 * reach)
    return slope


def length(values: Tensor) -> float:
    return math.sqrt(math.fsum(each * each for each in values.flatten().tolist()))


def project(perturbation: Tensor, epsilon: float, norm: str) -> Tensor:
    flat = perturbation.flatten().tolist()
    if norm == "linf":
        flat = [max(-epsilon, min(epsilon, each)) for each in flat]
    elif length(perturbation) > epsilon:
        factor = epsilon / length(perturbation)
        flat = [each * factor for each in flat]
    return torch.tensor(flat, dtype=perturbation.dtype).reshape(perturbation.shape)


def attack(
    logits: Logits,
    image: Tensor,
    label: int,
    *,
    epsilon: float,
    norm: str,
    step: float,
    steps: int,
    start: Tensor | None = None,
    target: int | None = None,
) -> Tensor:
    """FGSM (one step of epsilon), BIM, and PGD (with a start), until the answer is wrong or the target is reached."""
    here = image.clone() if start is None else start.clone()
    for _ in range(steps):
        answers = logits(here).tolist()
        answer = answers.index(max(answers))
        if (answer != label) if target is None else (answer == target):
            return here
        slope = gradient(logits, here, label) if target is None else -gradient(logits, here, target)
        if norm == "linf":
            move = torch.tensor([(each > 0) - (each < 0) for each in slope.flatten().tolist()]).reshape(image.shape)
        else:
            move = slope / length(slope)
        within = project(here + step * move - image, epsilon, norm)
        pixels = [max(0.0, min(1.0, each)) for each in (image + within).flatten().tolist()]
        here = torch.tensor(pixels, dtype=image.dtype).reshape(image.shape)
    return here
