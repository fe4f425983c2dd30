"""The quick tests of robustness that go with every comparison: seconds a model, enough to see large differences."""

from __future__ import annotations

from typing import Any

from torchcaps.data import datasets
from torchcaps.evaluate import Request, evaluate_robustness
from torchcaps.evaluate.adversarial import default_epsilons
from torchcaps.evaluate.viewpoint import FAMILIAR
from torchcaps.files import read_json, write_json
from torchcaps.train import RunConfig, RunFolder

CHANGED, ATTACKED = 200, 100  # test images
ATTACKS = ("fgsm", "bim")
EPSILONS = slice(2, 5)  # of the usual ones: where attacks soon succeed, they soon end
SHOWN = 0  # of those, the one that has a column


def quick_robustness(run: RunFolder) -> dict[str, Any]:
    """What fits the run's dataset, kept in the run's folder and taken from there the next time."""
    target = run.output("robustness.json")
    if target.is_file():
        found: dict[str, Any] = read_json(target)
        return found
    found = {}
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
