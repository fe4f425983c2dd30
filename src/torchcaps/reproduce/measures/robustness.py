"""Accuracy under attack, with the warnings of the sanity checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torchcaps.attacks import STRONGEST
from torchcaps.attacks.base import predict_labels
from torchcaps.attacks.model_wrapper import frozen_eval
from torchcaps.attacks.transfer import unclipped_fgsm
from torchcaps.data import Batch, ImageSet
from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.evaluate import attack_model
from torchcaps.evaluate.adversarial import IMAGES, first_pixels
from torchcaps.evaluate.clean import test_images
from torchcaps.evaluate.sanity import check_gradient, measure_gradient
from torchcaps.layers import Standardize
from torchcaps.models import Model, Output
from torchcaps.reproduce.measures.registry import MeasureInput, Measurement, register_measure
from torchcaps.train import load

Row = dict[str, Any]
# Units of epsilon: pixels from 0 to 1, or standard deviations of the image, which is the unit of the network's input.
PIXELS, DEVIATIONS = "pixels", "deviations"


@register_measure("attack-accuracy", "%", "accuracy on the first test images under an attack that sees the network")
def attack_accuracy(
    subject: MeasureInput,
    attack: str = "fgsm",
    epsilon: float | None = None,
    epsilons: Sequence[float] | None = None,
    images: int = IMAGES,
    logits: str = STRONGEST,
    units: str = PIXELS,
    lowest: bool = False,
) -> Measurement:
    """hinton2018, section 6 and figure 3; with ``lowest``, the value is the lowest accuracy over all epsilons."""
    found = _attacked(subject, attack, epsilon, epsilons, images, logits, units, lambda row: row["accuracy"])
    if not lowest:
        return found
    details = dict(found.details)
    details["accuracies"] = details.pop("curve")  # figures draw every curve
    return replace(
        found, value=min(share for _, share in details["accuracies"]), images=details["images"], details=details
    )


@register_measure(
    "targeted-success",
    "%",
    "share of pairs of a test image and a wrong class, not predicted before, in which targeted FGSM reaches that class",
)
def targeted_success(
    subject: MeasureInput,
    epsilon: float | None = None,
    epsilons: Sequence[float] | None = None,
    images: int = IMAGES,
    logits: str = STRONGEST,
    units: str = PIXELS,
) -> Measurement:
    """hinton2018, section 6 and figure 3, right."""
    reached: Callable[[Row], float] = lambda row: row["target_success"]  # noqa: E731
    return _attacked(subject, "targeted-fgsm", epsilon, epsilons, images, logits, units, reached)


@register_measure(
    "transfer-accuracy", "%", "accuracy on the first test images after FGSM on another network, which was trained alike"
)
def transfer_accuracy(
    subject: MeasureInput,
    epsilon: float | None = None,
    epsilons: Sequence[float] | None = None,
    images: int = IMAGES,
    units: str = PIXELS,
) -> Measurement:
    """chen2019, section 4.3; hinton2018, section 6."""
    run = subject.run
    if "source" not in subject.others:
        raise TorchcapsError(f"a transferred attack on {run.path.name} needs a training in the role 'source'")
    return _attacked(subject, "transfer", epsilon, epsilons, images, STRONGEST, units, lambda row: row["accuracy"])


@register_measure(
    "unclipped-transfer-accuracy",
    "%",
    "accuracy on the first test images plus epsilon times the sign of another network's gradient, not clipped to the "
    "range of pixels",
)
def unclipped_transfer_accuracy(subject: MeasureInput, epsilon: float = 8.0, images: int = IMAGES) -> Measurement:
    """chen2019, section 4.3, if its 8 was applied to pixels in [0, 1]; ``answers`` are the shares of the classes."""
    run = subject.run
    if "source" not in subject.others:
        raise TorchcapsError(f"a transferred attack on {run.path.name} needs a training in the role 'source'")
    model, source = load(run.path), load(subject.others["source"].path)
    pixels, labels = first_pixels(model, test_images(run.config()), images)
    with frozen_eval(model, seed=subject.seed):
        predicted = predict_labels(model, unclipped_fgsm(source, pixels, labels, epsilon))
    shares = (100 * torch.bincount(predicted, minlength=model.classes) / len(labels)).tolist()
    correct = (predicted == labels).double().mean().item()
    return Measurement(100 * correct, len(labels), {"answers": shares})


@register_measure(
    "universal-accuracy",
    "%",
    "accuracy on the first test images with one perturbation added to all, after the last iteration of the attack",
)
def universal_accuracy(
    subject: MeasureInput,
    epsilon: float = 0.3,
    iterations: int = 120,
    images: int = IMAGES,
    attack: str = "universal",
    loss: str | None = None,
) -> Measurement:
    """chen2019, section 4.4 and supplement 6.2; ``curve`` is the accuracy by iteration.

    ``attack`` is ``universal``, with one of its losses, or ``universal-pgd``.
    """
    model = load(subject.run.path)
    options = {attack: {"iterations": iterations} | ({"loss": loss} if loss else {})}
    result = _attack(subject, model, attack, (epsilon,), images, STRONGEST, options)
    row = result["attacks"][0]
    curve = [[int(iteration), 100 * share] for iteration, share in row["history"].items()]
    details = {"curve": curve, "clean_accuracy": 100 * result["clean_accuracy"]}
    return Measurement(100 * row["accuracy"], result["images"], details, _warnings(result))


@register_measure(
    "gradient-zeros", "%", "share of exact zeros in the gradient of the cross-entropy by the input of the network"
)
def gradient_zeros(subject: MeasureInput, images: int = IMAGES, logits: str = STRONGEST) -> Measurement:
    """hinton2018, section 6."""
    model = load(subject.run.path)
    found = measure_gradient(model, *first_pixels(model, test_images(subject.run.config()), images), logits)
    warned = check_gradient(found)
    details = {"norm": found.norm, "images_without_gradient": 100 * found.blind}
    return Measurement(100 * found.zeros, details=details, warnings=(warned.message,) if warned else ())


@register_measure(
    "gradient-size",
    "orders of magnitude",
    "log10 of the mean L2 norm per image of the gradient of the cross-entropy of the model's own logits, by the input "
    "of the network",
)
def gradient_size(subject: MeasureInput, images: int = IMAGES) -> Measurement:
    """hinton2018, section 6."""
    model = load(subject.run.path)
    found = measure_gradient(model, *first_pixels(model, test_images(subject.run.config()), images), "logits")
    return Measurement(math.log10(max(found.norm, 1e-300)), details={"norm": found.norm})


class NetworkInput(Model):
    """The network behind a model's preprocessing, whose input x is given as pixels x / span + 1/2.

    With a span that is wide enough, pixels are in [0, 1] and no input that an attack reaches is clipped.
    """

    def __init__(self, model: Model, span: float) -> None:
        super().__init__(model.image_shape, model.classes)
        self.model, self.span = model, span

    def classify(self, images: Tensor) -> Output:
        return self.model.classify((images - 0.5) * self.span)


class FixedImages(ImageSet):
    """Images as floats in memory."""

    def __init__(self, images: Tensor, labels: Tensor, class_names: tuple[str, ...]) -> None:
        self.images, self.labels, self.class_names = images, labels, class_names
        self.shape = (images.shape[1], images.shape[2], images.shape[3])

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: Tensor) -> Batch:
        return Batch(self.images[indices], self.labels[indices])


def _attacked(
    subject: MeasureInput,
    attack: str,
    epsilon: float | None,
    epsilons: Sequence[float] | None,
    images: int,
    logits: str,
    units: str,
    read: Callable[[Row], float],
) -> Measurement:
    """Measure the accuracy at one epsilon, or a curve over several."""
    model = load(subject.run.path)
    if (epsilon is None) == (epsilons is None):
        raise TorchcapsError("an attack needs either one 'epsilon' or a list of 'epsilons'")
    if units not in (PIXELS, DEVIATIONS):
        raise unknown_name("units", units, (PIXELS, DEVIATIONS))
    chosen = list(epsilons or (epsilon or 0.0,))
    if units == DEVIATIONS:
        result = _attack_normalized(subject, model, attack, chosen, images, logits)
    else:
        result = _attack(subject, model, attack, chosen, images, logits)
    curve = [[size, 100 * read(row)] for size, row in zip(chosen, result["attacks"], strict=True)]
    details = {
        "curve": curve,
        "units": units,
        "images": result["images"],
        "clean_accuracy": 100 * result["clean_accuracy"],
        "gradient": result["gradient"],
    }
    value, count = (curve[0][1], result["images"]) if len(curve) == 1 else (None, None)
    return Measurement(value, count, details, _warnings(result))


def _attack_normalized(
    subject: MeasureInput, model: Model, attack: str, epsilons: Sequence[float], images: int, logits: str
) -> Row:
    """Attack the standardized images themselves: epsilon is in standard deviations, and there are no bounds."""
    source = subject.others.get("source")
    baseline = load(source.path) if source else None
    if not all(isinstance(each.preprocess, Standardize) for each in (model, baseline) if each is not None):
        raise TorchcapsError(
            "an epsilon in standard deviations needs models that standardize their images, such as matrix-capsnet and "
            "cnn-hinton2018: give it in pixels"
        )
    tested = test_images(subject.run.config())
    pixels, labels = first_pixels(model, tested, images)
    inputs = model.preprocess(pixels)
    span = 2.001 * (inputs.abs().max().item() + max(epsilons))
    result = attack_model(
        NetworkInput(model, span),
        FixedImages(inputs / span + 0.5, labels, tested.class_names),
        (attack,),
        [epsilon / span for epsilon in epsilons],
        images_used=None,
        seed=subject.seed,
        logits=logits,
        baseline=NetworkInput(baseline, span) if baseline else None,
    )
    result["gradient"]["norm"] /= span
    return result


def _attack(
    subject: MeasureInput,
    model: Model,
    attack: str,
    epsilons: Sequence[float],
    images: int,
    logits: str,
    options: dict[str, Row] | None = None,
) -> Row:
    source = subject.others.get("source")
    return attack_model(
        model,
        test_images(subject.run.config()),
        (attack,),
        epsilons,
        images_used=images,
        seed=subject.seed,
        logits=logits,
        baseline=load(source.path) if source else None,
        options=options,
    )


def _warnings(result: Row) -> tuple[str, ...]:
    return tuple(f"{warned['name']}: {warned['message']}" for warned in result["sanity"])
