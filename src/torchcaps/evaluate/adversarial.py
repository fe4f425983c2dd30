"""Accuracy under adversarial attacks, with sanity checks of the result."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from torchcaps.attacks import STRONGEST, AttackRecord, AttackResult, attacks, create_attack
from torchcaps.attacks.base import predict_labels
from torchcaps.attacks.model_wrapper import frozen_eval
from torchcaps.data import ImageSet
from torchcaps.environment import describe_environment
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate.sanity import (
    check_black_box,
    check_gradient,
    check_huge_epsilon,
    check_random,
    measure_gradient,
)
from torchcaps.models import Model
from torchcaps.train.objective import crop_to_model

# By norm, and whether images have color: grayscale images tolerate larger perturbations than photographs.
EPSILONS = {
    ("linf", False): (0.02, 0.05, 0.1, 0.2, 0.3),
    ("linf", True): (1 / 255, 2 / 255, 4 / 255, 8 / 255, 16 / 255),
    ("l2", False): (0.5, 1.0, 1.5, 2.0, 3.0),
    ("l2", True): (0.1, 0.25, 0.5, 1.0, 2.0),
}
IMAGES = 500
CHECKED = 100  # images used by the sanity checks


def default_epsilons(channels: int, norm: str = "linf") -> tuple[float, ...]:
    """Return the default epsilons for images with this number of channels.

    >>> default_epsilons(1)
    (0.02, 0.05, 0.1, 0.2, 0.3)
    """
    return EPSILONS[norm, channels > 2]


def attack_model(
    model: Model,
    images: ImageSet,
    names: Sequence[str],
    epsilons: Sequence[float] | None = None,
    *,
    norm: str = "linf",
    images_used: int | None = IMAGES,
    seed: int = 0,
    logits: str = STRONGEST,
    budget: int | None = None,
    baseline: Model | None = None,
    options: Mapping[str, dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Run each attack at each epsilon; return accuracies and sanity warnings, ready to be written as JSON.

    Args:
        model: a trained model.
        images: its test images.
        names: names of attacks, see ``torchcaps.attacks.attacks``.
        epsilons: sizes of the perturbation; None for :func:`default_epsilons`.
        norm: ``linf`` or ``l2``.
        images_used: number of images, from the start of the set; None for all.
        seed, logits, budget: as in :class:`torchcaps.attacks.Attack`.
        baseline: a plain network trained on the same dataset: the source of transfer attacks, and the reference for the
            size of the gradient.
        options: settings of the attacks by name, such as ``{"universal": {"iterations": 200}}``.
    """
    records = [attacks.get(name) for name in names]
    for record in records:
        if record.needs_source and baseline is None:
            raise TorchcapsError(f"attack '{record.name}' needs another trained model as its source")
        if norm not in record.norms:
            raise TorchcapsError(f"attack '{record.name}' supports norm {' and '.join(record.norms)}, not {norm}")
    chosen = default_epsilons(model.image_shape[0], norm) if epsilons is None else tuple(epsilons)
    pixels, labels = first_pixels(model, images, images_used)
    rows = []
    for record in records:
        own = (options or {}).get(record.name, {}) | ({"source": baseline} if record.needs_source else {})
        built = create_attack(record.name, norm=norm, **own)
        for epsilon in chosen:
            start = time.perf_counter()
            result = built(model, pixels, labels, epsilon=epsilon, logits=logits, seed=seed, budget=budget)
            rows.append(_row(record, epsilon, result, time.perf_counter() - start))
    with frozen_eval(model, seed):
        clean = (predict_labels(model, pixels) == labels).double().mean().item()
    return {
        "images": len(labels),
        "clean_accuracy": clean,
        "norm": norm,
        "logits": logits,
        "seed": seed,
        "attacks": rows,
        **_sanity(model, pixels[:CHECKED], labels[:CHECKED], rows, baseline, norm, logits, seed),
        "environment": describe_environment(),
    }


def fast_gradient_curves(
    model: Model, images: ImageSet, epsilons: Sequence[float] | None = None, **settings: Any
) -> dict[str, Any]:
    """Measure figure 3 of hinton2018: accuracy under FGSM and BIM, and the success rate of targeted FGSM.

    Returns the result of :func:`attack_model`; ``target_success`` in the rows of ``targeted-fgsm`` is the right half of
    the figure.
    """
    return attack_model(model, images, ("fgsm", "bim", "targeted-fgsm"), epsilons, **settings)


def first_pixels(model: Model, images: ImageSet, count: int | None) -> tuple[Tensor, Tensor]:
    """Return the first ``count`` images (None for all) as the model takes them, and labels, on the model's device."""
    used = len(images) if count is None else min(count, len(images))
    batch = images.batch(torch.arange(used))
    device = next(model.parameters()).device
    return crop_to_model(model, batch.images).to(device), batch.labels.to(device)


def _row(record: AttackRecord, epsilon: float, result: AttackResult, seconds: float) -> dict[str, Any]:
    row: dict[str, Any] = {
        "attack": record.name,
        "epsilon": epsilon,
        "accuracy": result.accuracy,
        "broken_by": result.by_view,
        "queries": result.queries,
        "seconds": seconds,
    }
    if result.hits is not None and result.targets is not None:
        row["target_success"] = int(result.hits.sum()) / max(int(result.targets.sum()), 1)
    if result.history:
        row["history"] = {str(iteration): accuracy for iteration, accuracy in result.history.items()}
    return row


def _sanity(
    model: Model,
    pixels: Tensor,
    labels: Tensor,
    rows: list[dict[str, Any]],
    baseline: Model | None,
    norm: str,
    logits: str,
    seed: int,
) -> dict[str, Any]:
    measured = measure_gradient(model, pixels, labels, logits)
    reference = None if baseline is None else measure_gradient(baseline, pixels, labels)
    warned = [
        check_gradient(measured, reference),
        check_random(model, pixels),
        check_huge_epsilon(model, pixels, labels, norm=norm, logits=logits, seed=seed),
        *check_black_box(rows),
    ]
    return {
        "gradient": asdict(measured),
        "gradient_of_baseline": None if reference is None else asdict(reference),
        "sanity": [asdict(each) for each in warned if each is not None],
    }
