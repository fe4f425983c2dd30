"""Robustness of a run: the tests by name, the attacks, one result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcaps.attacks import STRONGEST, attacks, create_attack, logits_views
from torchcaps.attacks.norms import get_norm
from torchcaps.data import datasets
from torchcaps.environment import describe_environment
from torchcaps.errors import TorchcapsError, unknown_name
from torchcaps.evaluate.acgan import SIZES, measure_acgan
from torchcaps.evaluate.adversarial import IMAGES, attack_model
from torchcaps.evaluate.affine import affine_sets, measure_affine
from torchcaps.evaluate.clean import check_digits, test_images
from torchcaps.evaluate.overlap import measure_overlap, overlap_set
from torchcaps.evaluate.viewpoint import measure_viewpoints, viewpoint_sets
from torchcaps.models import Model
from torchcaps.registry import Registry
from torchcaps.train import RunConfig, RunFolder, load, open_run


@dataclass(frozen=True)
class Protocol:
    """A test by name. ``measure`` takes a model, what it was trained on, and how many images to use at most."""

    name: str
    description: str
    paper: str
    measure: Callable[[Model, str, int | None], dict[str, Any]]


def _affine(model: Model, data: str, images_used: int | None) -> dict[str, Any]:
    return measure_affine(model, affine_sets(model, data, images_used))


def _overlap(model: Model, data: str, images_used: int | None) -> dict[str, Any]:
    pairs = datasets.get(data).labels_per_image == 2
    return measure_overlap(model, overlap_set(model, data), images_used=images_used, pairs=pairs)


def _viewpoint(model: Model, data: str, images_used: int | None) -> dict[str, Any]:
    return measure_viewpoints(model, *viewpoint_sets(data), images_used=images_used)


def _acgan(model: Model, data: str, images_used: int | None) -> dict[str, Any]:
    check_digits(model, data, "drawn digits")
    return measure_acgan(model, SIZES["laptop"], images_used=images_used)


protocols: Registry[Protocol] = Registry("test")
protocols.add(Protocol("affnist", "digits under affine change, and each factor alone", "gu2021", _affine))
protocols.add(Protocol("multimnist", "two overlaid digits, each drawn on its own", "sabour2017", _overlap))
protocols.add(Protocol("acgan", "digits that a GAN draws, after each epoch of its training", "chen2019", _acgan))
protocols.add(Protocol("viewpoint", "things from sides not seen in training", "hinton2018", _viewpoint))


@dataclass(frozen=True)
class Request:
    """What to measure; every name is checked when this is made, before anything is measured.

    Args:
        on: names of tests, see ``protocols``.
        attack: names of attacks, see ``torchcaps.attacks.attacks``.
        epsilons: sizes of the perturbation; None: the usual ones for the model's images.
        norm: ``linf`` or ``l2``.
        images: at most so many of each set; None: all.
        logits: what attacks see, see ``torchcaps.attacks.logits_views``.
        source: a trained run on which transferred images are made, and whose gradient is the reference.
    """

    on: tuple[str, ...] = ()
    attack: tuple[str, ...] = ()
    epsilons: tuple[float, ...] | None = None
    norm: str = "linf"
    images: int | None = IMAGES
    logits: str = STRONGEST
    source: Path | None = None

    def __post_init__(self) -> None:
        for name in self.on:
            protocols.get(name)
        get_norm(self.norm)
        if self.logits not in (STRONGEST, *logits_views.names()):
            raise unknown_name("logits", self.logits, [STRONGEST, *logits_views.names()])
        for name in self.attack:
            if not attacks.get(name).needs_source:
                create_attack(name, norm=self.norm)  # says what must be installed, and which norms there are
            elif self.source is None:
                raise TorchcapsError(f"attack '{name}' needs another trained run: name one with --source")
        if self.source is not None:
            open_run(self.source)
        if any(not 0 <= epsilon <= 1 for epsilon in self.epsilons or ()) and self.norm == "linf":
            raise TorchcapsError(f"epsilon is in pixels of [0, 1], got {', '.join(map(str, self.epsilons or ()))}")
        if self.images is not None and self.images < 1:
            raise TorchcapsError(f"at least 1 image is needed, got {self.images}")


def evaluate_robustness(run: RunFolder, request: Request) -> dict[str, Any]:
    """Every test and attack that was asked for; ``refused`` says what cannot be done with this run, and why."""
    run.check_dataset()
    config, model = run.config(), load(run.path)
    tests: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for name in request.on:
        try:
            tests[name] = protocols.get(name).measure(model, config.data, request.images)
        except TorchcapsError as error:
            refused[name] = str(error)
    attacked = None
    if request.attack:
        try:
            attacked = _attack(model, config, request)
        except TorchcapsError as error:
            refused["attacks"] = str(error)
    return {
        "run": str(run.path),
        "model": config.model,
        "size": config.size,
        "data": config.data,
        "seed": config.seed,
        "tests": tests,
        "attacked": attacked,
        "refused": refused,
        "environment": describe_environment(),
    }


def _attack(model: Model, config: RunConfig, request: Request) -> dict[str, Any]:
    source = None if request.source is None else load(request.source)
    if source is not None and (source.image_shape, source.classes) != (model.image_shape, model.classes):
        raise TorchcapsError(
            f"the source takes images {source.image_shape} of {source.classes} classes and this model "
            f"{model.image_shape} of {model.classes}: choose a source trained on the same set"
        )
    attacked = attack_model(
        model,
        test_images(config),
        request.attack,
        request.epsilons,
        norm=request.norm,
        images_used=request.images,
        logits=request.logits,
        baseline=source,
    )
    del attacked["environment"]  # stands once for the whole evaluation
    return attacked
