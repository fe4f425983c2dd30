"""Accuracy of pretrained networks under attack: python examples/attack.py

Compares two pretrained networks on the same test digits and attacks. Prints a warning if a sanity check fails (masked
gradients, random outputs): the accuracy is then no evidence of robustness.
"""

import argparse

from torchcaps.data import TensorImages
from torchcaps.evaluate import attack_model
from torchcaps.models import create_model
from torchcaps.pretrained import load_samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="capsnet,convnet-avg", help="comma-separated, see 'torchcaps weights'")
    parser.add_argument("--attacks", default="fgsm,pgd", help="comma-separated, see 'torchcaps attacks'")
    parser.add_argument("--epsilon", type=float, default=0.1, help="largest change of a pixel in [0, 1]")
    parser.add_argument("--images", type=int, default=40)
    given = parser.parse_args()

    samples = load_samples("mnist")
    digits = TensorImages(samples.images, samples.labels, tuple("0123456789"))
    for name in given.models.split(","):
        model = create_model(name, pretrained="mnist-laptop")
        found = attack_model(
            model, digits, given.attacks.split(","), epsilons=[given.epsilon], images_used=given.images
        )
        print(f"{name}: clean accuracy {found['clean_accuracy']:.0%} on {found['images']} digits")
        for row in found["attacks"]:
            print(f"    {row['attack']}, epsilon {row['epsilon']:g}: {row['accuracy']:.0%}")
        for warned in found["sanity"]:
            print(f"    warning: {warned['message']}")


if __name__ == "__main__":
    main()
