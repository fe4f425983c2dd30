"""Accuracy under attack, with the warnings of the sanity checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchcaps.attacks import STRONGEST
from torchcaps.errors import TorchcapsError
from torchcaps.evaluate import attack_model
from torchcaps.evaluate.adversarial import IMAGES, first_pixels
from torchcaps.evaluate.clean import test_images
from torchcaps.evaluate.sanity import check_gradient, measure_gradient
from torchcaps.models import Model
from torchcaps.reproduce.measures.registry import MeasureInput, Measurement, register_measure
from torchcaps.train import load

Row = dict[str, Any]


@register_measure("attack-accuracy", "%", "accuracy on the first test images under an attack that sees the network")
def attack_accuracy(
    subject: MeasureInput,
    attack: str = "fgsm",
    epsilon: float | None = None,
    epsilons: Sequence[float] | None = None,
    images: int = IMAGES,
    logits: str = STRONGEST,
) -> Measurement:
    """hinton2018, section 6 and figure 3."""
    return _attacked(subject, attack, epsilon, epsilons, images, logits, lambda row: row["accuracy"])


@register_measure(
    "targeted-success",
    "%",
    "share of pairs of a test image and a wrong class in which targeted FGSM reaches that class",
)
def targeted_success(
    subject: MeasureInput,
    epsilon: float | None = None,
    epsilons: Sequence[float] | None = None,
    images: int = IMAGES,
    logits: str = STRONGEST,
) -> Measurement:
    """hinton2018, section 6 and figure 3, right."""
    return _attacked(subject, "targeted-fgsm", epsilon, epsilons, images, logits, lambda row: row["target_success"])


@register_measure(
    "transfer-accuracy", "%", "accuracy on the first test images after FGSM on another network, which was trained alike"
)
def transfer_accuracy(
    subject: MeasureInput, epsilon: float | None = None, epsilons: Sequence[float] | None = None, images: int = IMAGES
) -> Measurement:
    """chen2019, section 4.3; hinton2018, section 6."""
    run = subject.run
    if "source" not in subject.others:
        raise TorchcapsError(f"a transferred attack on {run.path.name} needs a training in the role 'source'")
    return _attacked(subject, "transfer", epsilon, epsilons, images, STRONGEST, lambda row: row["accuracy"])


@register_measure(
    "universal-accuracy",
    "%",
    "accuracy on the first test images with one perturbation added to all, drawn by a generator after its last step",
)
def universal_accuracy(
    subject: MeasureInput, epsilon: float = 0.3, iterations: int = 120, images: int = IMAGES
) -> Measurement:
    """chen2019, section 4.4 and supplement 6.2; ``curve`` is the accuracy by the steps of the generator."""
    model = load(subject.run.path)
    options = {"universal": {"iterations": iterations}}
    result = _attack(subject, model, "universal", (epsilon,), images, STRONGEST, options)
    row = result["attacks"][0]
    curve = [[int(iteration), 100 * share] for iteration, share in row["history"].items()]
    details = {"curve": curve, "clean_accuracy": 100 * result["clean_accuracy"]}
    return Measurement(100 * row["accuracy"], result["images"], details, _warnings(result))


@register_measure("gradient-zeros", "%", "share of exact zeros in the gradient of the cross-entropy by the pixels")
def gradient_zeros(subject: MeasureInput, images: int = IMAGES, logits: str = STRONGEST) -> Measurement:
    """hinton2018, section 6."""
    model = load(subject.run.path)
    found = measure_gradient(model, *first_pixels(model, test_images(subject.run.config()), images), logits)
    warned = check_gradient(found)
    details = {"norm": found.norm, "images_without_gradient": 100 * found.blind}
    return Measurement(100 * found.zeros, details=details, warnings=(warned.message,) if warned else ())


def _attacked(
    subject: MeasureInput,
    attack: str,
    epsilon: float | None,
    epsilons: Sequence[float] | None,
    images: int,
    logits: str,
    read: Callable[[Row], float],
) -> Measurement:
    """Measure the accuracy at one epsilon, or a curve over several."""
    model = load(subject.run.path)
    if (epsilon is None) == (epsilons is None):
        raise TorchcapsError("an attack needs either one 'epsilon' or a list of 'epsilons', in pixels of [0, 1]")
    result = _attack(subject, model, attack, epsilons or (epsilon or 0.0,), images, logits)
    curve = [[row["epsilon"], 100 * read(row)] for row in result["attacks"]]
    details = {"curve": curve, "clean_accuracy": 100 * result["clean_accuracy"], "gradient": result["gradient"]}
    value, count = (curve[0][1], result["images"]) if len(curve) == 1 else (None, None)
    return Measurement(value, count, details, _warnings(result))


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
