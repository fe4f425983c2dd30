"""Universal attacks on the bundled MNIST weights, and on networks trained with and without shifted images.

Run: python -m benchmarks.universal_attack [bundled|augmentation]; writes results/robustness/universal/evaluation.json
with docs/images/universal.png, or results/robustness/augmentation/evaluation.json. From these files
scripts/robustness_page.py makes a part of docs/robustness.md.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from torchcaps import create_model
from torchcaps.data import load_dataset
from torchcaps.environment import describe_environment
from torchcaps.evaluate import attack_model
from torchcaps.evaluate.figures import history_curves
from torchcaps.files import write_json
from torchcaps.train import fit_run, load, new_run, resolve

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "robustness"
WEIGHTS = "mnist-laptop"
MODELS = ("capsnet", "convnet-avg")
EPSILON, IMAGES, ITERATIONS = 0.3, 1000, 120
ATTACKS: dict[str, tuple[str, dict[str, Any]]] = {
    "generator, logit difference": ("universal", {"loss": "logit-difference"}),
    "generator, cross-entropy": ("universal", {"loss": "cross-entropy"}),
    "universal PGD": ("universal-pgd", {}),
}
TRAINING = {"model": "g-capsnet-conv", "size": "laptop", "data": "mnist", "train_images": 20000, "steps": 500}
AUGMENTATIONS = ("", "shift=2")


def attacked(model: str) -> dict[str, Any]:
    """Run all attacks on a model with bundled weights."""
    network, images = create_model(model, pretrained=WEIGHTS), load_dataset("mnist", "test")
    found: dict[str, Any] = {"model": model, "weights": WEIGHTS, "attacked": {}}
    for label, (name, settings) in ATTACKS.items():
        options = {name: {"iterations": ITERATIONS, **settings}}
        result = attack_model(network, images, (name,), (EPSILON,), images_used=IMAGES, options=options)
        del result["environment"]
        found["attacked"][label] = result
        print(f"{model}, {label}: {100 * result['attacks'][0]['accuracy']:.1f} %", flush=True)
    return found


def augmented(augmentation: str) -> dict[str, Any]:
    """Train a network with an augmentation and attack it by universal PGD."""
    with tempfile.TemporaryDirectory() as folder:
        run = new_run(resolve(**TRAINING, augmentation=augmentation, device="cpu"), Path(folder) / "run")
        fit_run(run)
        images = load_dataset("mnist", "test")
        result = attack_model(load(run.path), images, ("universal-pgd",), (EPSILON,), images_used=IMAGES)
    del result["environment"]
    print(f"{augmentation or 'no augmentation'}: {100 * result['attacks'][0]['accuracy']:.1f} %", flush=True)
    return {**TRAINING, "augmentation": augmentation, "attacked": result}


def draw(runs: list[dict[str, Any]]) -> None:
    """Draw the accuracy by iteration, one panel per attack."""
    curves = {
        run["model"]: [
            {"attacks": [{**row, "attack": label} for row in found["attacks"]]}
            for label, found in run["attacked"].items()
        ]
        for run in runs
    }
    history_curves(curves).savefig(ROOT / "docs" / "images" / "universal.png", dpi=150)


def main(part: str) -> None:
    settings = {"epsilon": EPSILON, "images": IMAGES, "iterations": ITERATIONS}
    bundled = part == "bundled"
    runs = [attacked(model) for model in MODELS] if bundled else [augmented(each) for each in AUGMENTATIONS]
    write_json(
        RESULTS / ("universal" if bundled else "augmentation") / "evaluation.json",
        {"settings": settings, "runs": runs, "environment": describe_environment()},
    )
    if bundled:
        draw(runs)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "bundled")
