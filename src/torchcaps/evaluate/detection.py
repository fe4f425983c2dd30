r"""Detect images unlike the training images by the error of their reconstruction from the winning capsule.

Frosst, Sabour, Hinton: DARCCC: Detecting Adversaries by Reconstruction from Class Conditional Capsules, 2018,
https://arxiv.org/abs/1811.06969. Qin, Frosst, Sabour, Raffel, Cottrell, Hinton: Detecting and Diagnosing Adversarial
Images with Class-Conditional Capsule Reconstructions, 2020, https://arxiv.org/abs/1907.02957.

A detector is measured by the area under its ROC curve, AUROC: the probability that it ranks a foreign image above a
test image; 0.5 is chance. The baseline is the confidence of a network, the largest softmax probability. The attack
``reconstructive`` knows the detector: once an image is misclassified, it also minimizes the reconstruction error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.attacks import create_attack
from torchcaps.attacks.model_wrapper import frozen_eval
from torchcaps.data import ImageSet, datasets, load_dataset
from torchcaps.data.base import chunks
from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.evaluate.adversarial import default_epsilons, first_pixels
from torchcaps.models import Model
from torchcaps.progress import progress_bar
from torchcaps.train.run_images import reconstruction_errors

NOISE, RECONSTRUCTIVE = "noise", "reconstructive"
ATTACKS = ("fgsm", "bim", "pgd", RECONSTRUCTIVE)
STEPS, RELATIVE_STEP = 40, 0.05  # of the reconstructive attack; the step is relative to epsilon
FALSE_ALARMS = 0.05  # share of the test images that may be flagged, for the undetected rate
BATCH = 100


def default_sources(data: str, image_shape: tuple[int, int, int]) -> tuple[str, ...]:
    """Return what to detect by default: another dataset of the same shape, noise and attacks.

    >>> default_sources("mnist", (1, 28, 28))
    ('fashion-mnist', 'noise', 'fgsm', 'bim', 'pgd', 'reconstructive')
    """
    others = [name for name in ("fashion-mnist", "mnist") if name != data and datasets.get(name).shape == image_shape]
    return (*others[:1], NOISE, *ATTACKS)


def auroc(foreign: Tensor, usual: Tensor) -> float:
    """Return the probability that a foreign image has a higher score than a usual one; ties count half.

    >>> auroc(torch.tensor([3.0, 2.0]), torch.tensor([1.0, 2.0]))
    0.875
    """
    ordered = usual.double().sort().values
    below = torch.searchsorted(ordered, foreign.double(), right=False)
    not_above = torch.searchsorted(ordered, foreign.double(), right=True)
    return float((below + not_above).double().mean() / (2 * len(ordered)))


@torch.no_grad()
def detector_scores(model: Model, images: Tensor) -> dict[str, Tensor]:
    """Return the scores (B,) of each detector, high for foreign images, and the predicted labels."""
    errors, doubts, labels = [], [], []
    for part in chunks(len(images), BATCH):
        output = model(images[part])
        found = reconstruction_errors(model, images[part], output)
        errors.append(torch.zeros(len(output.scores)) if found is None else found)
        doubts.append(-output.logits.log_softmax(1).amax(1))
        labels.append(output.scores.argmax(1))
    return {"error": torch.cat(errors), "doubt": torch.cat(doubts), "label": torch.cat(labels)}


def reconstructive_attack(
    model: Model, images: Tensor, labels: Tensor, epsilon: float, *, steps: int = STEPS
) -> Tensor:
    """Attack the classification and the detector: misclassified images that are reconstructed well.

    Each step climbs the cross-entropy of images that are still classified correctly, and descends the reconstruction
    error of the others. The misclassified image with the smallest error is kept.

    Shapes: images (B, C, H, W), labels (B,).
    """
    best, smallest = images.clone(), torch.full((len(images),), torch.inf)
    current = (images + epsilon * (2 * torch.rand_like(images) - 1)).clamp(0, 1)
    for step in range(steps + 1):
        current = current.detach().requires_grad_()
        output = model(current)
        errors = reconstruction_errors(model, current, output)
        assert errors is not None
        fooled = output.scores.argmax(1) != labels
        improved = fooled & (errors.detach() < smallest)
        best[improved], smallest[improved] = current.detach()[improved], errors.detach()[improved]
        if step == steps:
            break
        wrong = F.cross_entropy(output.logits, labels, reduction="none")
        (gradient,) = torch.autograd.grad(torch.where(fooled, -errors, wrong).sum(), current)
        moved = current.detach() + RELATIVE_STEP * epsilon * gradient.sign()
        current = images + (moved - images).clamp(-epsilon, epsilon)
        current = current.clamp(0, 1)
    return best


def measure_detection(
    model: Model,
    images: ImageSet,
    sources: Sequence[str],
    *,
    images_used: int | None = 200,
    epsilon: float | None = None,
    baseline: Model | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Measure how well foreign and adversarial images are told from test images.

    Args:
        model: a model with a decoder.
        images: its test images.
        sources: names of datasets of the same shape, ``noise``, and attacks: ``fgsm``, ``bim``, ``pgd`` or
            ``reconstructive``.
        images_used: number of images of each kind; None for all.
        epsilon: size of the perturbations; None for the middle one of the default epsilons.
        baseline: a plain network for the same images, whose confidence is the baseline. Attacks are made against it
            itself.
        seed: of noise and random starts.
    """
    if model.decoder is None:
        raise TorchcapsError("detection needs a model with a decoder: train one with decoder=conditional, as capsnet")
    known = [*datasets.names(), NOISE, *ATTACKS]
    for name in sources:
        if name not in known:
            raise unknown_name("kind of images", name, known)
    pixels, labels = first_pixels(model, images, images_used)
    if labels.ndim != 1:
        raise TorchcapsError("detection needs one label per image: a capsule draws one object")
    size = default_epsilons(model.image_shape[0])[2] if epsilon is None else epsilon
    networks = {"model": model} | ({} if baseline is None else {"baseline": baseline})
    rows = []
    with progress_bar("detecting", len(sources)) as advance:
        usual = {name: _scores(network, pixels, seed) for name, network in networks.items()}
        limit = usual["model"]["error"].quantile(1 - FALSE_ALARMS)
        for source in sources:
            made = {name: _foreign(network, source, pixels, labels, size, seed) for name, network in networks.items()}
            found = {name: _scores(network, made[name][0], seed) for name, network in networks.items()}
            # An attack succeeds on an image that was classified correctly; other images are all foreign.
            fooled = {
                name: (
                    (usual[name]["label"] == labels) & (found[name]["label"] != labels)
                    if source in ATTACKS
                    else torch.ones(len(made[name][0]), dtype=torch.bool)
                )
                for name in networks
            }
            own = fooled["model"]
            row: dict[str, Any] = {"images": source, "epsilon": size if source in ATTACKS else None}
            row["success"] = float(own.double().mean()) if source in ATTACKS else None
            row["reconstruction"] = _area(found, usual, fooled, "model", "error")
            row["confidence"] = _area(found, usual, fooled, "model", "doubt")
            row["baseline_confidence"] = _area(found, usual, fooled, "baseline", "doubt") if baseline else None
            row["undetected"] = float((own & (found["model"]["error"] <= limit)).double().mean())
            rows.append(row)
            advance(1)
    clean = float((usual["model"]["label"] == labels).double().mean())
    return {
        "test_images": len(labels),
        "clean_accuracy": clean,
        "false_alarms": FALSE_ALARMS,
        "seed": seed,
        "rows": rows,
    }


def _area(
    found: dict[str, dict[str, Tensor]],
    usual: dict[str, dict[str, Tensor]],
    fooled: dict[str, Tensor],
    network: str,
    score: str,
) -> float | None:
    chosen = found[network][score][fooled[network]]
    return auroc(chosen, usual[network][score]) if len(chosen) else None


def _scores(network: Model, pixels: Tensor, seed: int) -> dict[str, Tensor]:
    with frozen_eval(network, seed):
        return detector_scores(network, pixels)


def _foreign(
    network: Model, source: str, pixels: Tensor, labels: Tensor, epsilon: float, seed: int
) -> tuple[Tensor, Tensor]:
    """Return foreign images with the labels of the images that they were made from."""
    if source == NOISE:
        return torch.rand(pixels.shape, generator=torch.Generator().manual_seed(seed)), labels
    if source == RECONSTRUCTIVE and network.decoder is not None:
        with frozen_eval(network, seed):
            parts = [
                reconstructive_attack(network, pixels[part], labels[part], epsilon)
                for part in chunks(len(pixels), BATCH)
            ]
        return torch.cat(parts), labels
    if source in ATTACKS:  # a network without a decoder has no detector to attack
        attack = create_attack("pgd" if source == RECONSTRUCTIVE else source)
        return attack(network, pixels, labels, epsilon=epsilon, seed=seed).images, labels
    found, _ = first_pixels(network, load_dataset(source, "test"), len(pixels))
    if tuple(found.shape[1:]) != network.image_shape:
        raise TorchcapsError(
            f"{source} has images {tuple(found.shape[1:])}, the model takes {network.image_shape}: choose another one"
        )
    return found, labels[: len(found)]
