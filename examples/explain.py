"""Explain a network: what its capsules encode and which positions voted: python examples/explain.py

Writes an HTML page with figures, and the same data as JSON, to a directory.
"""

import argparse
from pathlib import Path

from torchcaps.analysis.explain import explain
from torchcaps.data import TensorImages
from torchcaps.models import create_model
from torchcaps.pretrained import load_samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="capsnet", help="model with weights for MNIST, see 'torchcaps weights'")
    parser.add_argument("--image", help="image file or number of a test digit  [default: one per class]")
    parser.add_argument("--only", default="perturbation,couplings", help="comma-separated names; '' for all")
    parser.add_argument("--out", type=Path, default=Path("explained"))
    given = parser.parse_args()

    model = create_model(given.model, pretrained="mnist-laptop")
    samples = load_samples("mnist")
    digits = TensorImages(samples.images, samples.labels, model.class_names)
    names = [name for name in given.only.split(",") if name]
    report = explain(model, digits, given.out, picture=given.image, only=names, title=f"{given.model} on MNIST")
    for name, found in report["explanations"].items():
        print(f"{name}: {found['finding']}")
    for name, reason in report["skipped"].items():
        print(f"{name} skipped: {reason}")
    print(f"Page: {given.out / 'index.html'}")


if __name__ == "__main__":
    main()
