"""The quick tests of robustness that go with every comparison: seconds a model, enough to see large differences."""

from __future__ import annotations

from typing import Any

from torchcaps.data import datasets
from torchcaps.evaluate import Request, evaluate_robustness
from torchcaps.evaluate.adversarial import default_epsilons
from torchcaps.files import read_json, write_json
from torchcaps.train import RunFolder

CHANGED, ATTACKED = 200, 100  # test images
ATTACKS = ("fgsm", "bim")
EPSILONS = slice(2, 5)  # of the usual ones: where attacks soon succeed, they soon end
SHOWN = 0  # of those, the one that has a column


def quick_robustness(run: RunFolder) -> dict[str, Any]:
    """Affine change and two attacks at three epsilons, or overlap; kept in the run's folder and taken from there."""
    target = run.path / "robustness.json"
    if target.is_file():
        found: dict[str, Any] = read_json(target)
        return found
    config = run.config()
    if datasets.get(config.data).labels_per_image > 1:
        found = evaluate_robustness(run, Request(on=("multimnist",), images=CHANGED))
    else:
        found = evaluate_robustness(run, Request(on=("affnist",), images=CHANGED))
        epsilons = default_epsilons(config.image_shape[0])[EPSILONS]
        attacked = evaluate_robustness(run, Request(attack=ATTACKS, epsilons=epsilons, images=ATTACKED))
        found |= {"attacked": attacked["attacked"], "refused": found["refused"] | attacked["refused"]}
    write_json(target, found)
    return found


def accuracy_under(found: dict[str, Any], attack: str) -> float:
    """Accuracy under an attack at the epsilon that has a column."""
    rows = [row for row in found["attacked"]["attacks"] if row["attack"] == attack]
    return float(rows[SHOWN]["accuracy"])
