"""The quick tests of robustness that go with every comparison: seconds a model, enough to see large differences."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from torchcaps.attacks import attacks
from torchcaps.data import datasets
from torchcaps.evaluate import Request, evaluate_robustness
from torchcaps.evaluate.adversarial import default_epsilons
from torchcaps.evaluate.affine import FACTORS, STEPS
from torchcaps.evaluate.viewpoint import FAMILIAR
from torchcaps.files import write_json
from torchcaps.train import RunConfig, RunFolder
from torchcaps.train.run_folder import Count, Recorded, Share, read_recorded

CHANGED, ATTACKED = 200, 100  # test images
ATTACKS = ("fgsm", "bim")
EPSILONS = slice(2, 5)  # of the usual ones: where attacks soon succeed, they soon end
SHOWN = 0  # of those, the one that has a column


class Curve(Recorded):
    """Accuracy against the strength of one affine factor."""

    strength: list[Annotated[float, Field(ge=-1000, le=1000)]] = Field(min_length=STEPS, max_length=STEPS)
    accuracy: list[Share] = Field(min_length=STEPS, max_length=STEPS)


class Affine(Recorded):
    about: str
    images: Count
    accuracy: Share
    curves: dict[str, Curve]

    @model_validator(mode="after")
    def check_factors(self) -> Self:
        if set(self.curves) != set(FACTORS):
            raise ValueError(f"the curves must be those of {', '.join(FACTORS)}")
        return self


class Viewpoint(Recorded):
    familiar_error: Share


class Overlap(Recorded):
    drawing_error: Annotated[float, Field(ge=0, le=1e6)] | None


class Tests(Recorded):
    affnist: Affine | None = None
    viewpoint: Viewpoint | None = None
    multimnist: Overlap | None = None


class AttackRow(Recorded):
    attack: str
    epsilon: Annotated[float, Field(ge=0, le=1000)]
    accuracy: Share


class Warned(Recorded):
    name: str
    message: str


class Attacked(Recorded):
    images: Count
    clean_accuracy: Share
    norm: str
    logits: str
    attacks: list[AttackRow]
    sanity: list[Warned]

    @model_validator(mode="after")
    def check_attacks(self) -> Self:
        found = {row.attack for row in self.attacks}
        if not set(ATTACKS) <= found or not all(name in attacks for name in found):
            raise ValueError(f"the attacks must be known, and {' and '.join(ATTACKS)} among them")
        return self


class Robustness(Recorded):
    """What ``quick_robustness`` keeps in a run directory, as far as tables and figures read it."""

    tests: Tests
    attacked: Attacked | None


def quick_robustness(run: RunFolder) -> dict[str, Any]:
    """What fits the run's dataset, kept in the run's folder and taken from there the next time."""
    target = run.output("robustness.json")
    if target.is_file():
        return read_recorded(Robustness, target)
    found: dict[str, Any] = {}
    for request in _requests(run.config()):
        more = evaluate_robustness(run, request)
        earlier = {key: found.get(key, {}) | more[key] for key in ("tests", "refused")}
        found = more | earlier | {"attacked": found.get("attacked") or more["attacked"]}
    write_json(target, found)
    return found


def _requests(config: RunConfig) -> list[Request]:
    """Overlap for pairs of digits; else affine change and two attacks, and viewpoints where there are novel ones."""
    record = datasets.get(config.data)
    if record.labels_per_image > 1:
        return [Request(on=("multimnist",), images=CHANGED)]
    epsilons = default_epsilons(config.image_shape[0])[EPSILONS]
    requests = [
        Request(on=("affnist",), images=CHANGED),
        Request(attack=ATTACKS, epsilons=epsilons, images=ATTACKED),
    ]
    # Models are matched by these figures, so they are of all images.
    return requests + [Request(on=("viewpoint",), images=None)] * (FAMILIAR in record.splits)


def accuracy_under(found: dict[str, Any], attack: str) -> float:
    """Accuracy under an attack at the epsilon that has a column."""
    rows = [row for row in found["attacked"]["attacks"] if row["attack"] == attack]
    return float(rows[SHOWN]["accuracy"])
