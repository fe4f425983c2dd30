"""Look into a network: what its capsules hold and which places voted: python examples/explain.py

Writes a page with pictures, and everything on it as numbers, into a folder.
"""

import argparse
from pathlib import Path

from torchcaps.analysis.explain import explain
from torchcaps.data import TensorImages
from torchcaps.models import create_model
from torchcaps.pretrained import load_samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="capsnet", help="one with weights for MNIST, see 'torchcaps weights'")
    parser.add_argument("--image", help="a picture file, or the number of a test digit; one of each class if none")
    parser.add_argument("--only", default="perturbation,couplings", help="names behind commas; '' for all")
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
        print(f"{name} is left out: {reason}")
    print(f"Page: {given.out / 'index.html'}")


if __name__ == "__main__":
    main()
