"""How much of a network's accuracy is left when every pixel may change a little: python examples/attack.py

Two of the networks that come with torchcaps meet the same test digits under the same attacks. A figure whose sanity
checks failed (hidden gradients, random answers) is not to be trusted, and says so.
"""

import argparse

from torchcaps.data import TensorImages
from torchcaps.evaluate import attack_model
from torchcaps.models import create_model
from torchcaps.pretrained import load_samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="capsnet,convnet-avg", help="names behind commas, see 'torchcaps weights'")
    parser.add_argument("--attacks", default="fgsm,pgd", help="names behind commas, see 'torchcaps attacks'")
    parser.add_argument("--epsilon", type=float, default=0.1, help="the most that a pixel in [0, 1] may change")
    parser.add_argument("--images", type=int, default=40)
    given = parser.parse_args()

    samples = load_samples("mnist")
    digits = TensorImages(samples.images, samples.labels, tuple("0123456789"))
    for name in given.models.split(","):
        model = create_model(name, pretrained="mnist-laptop")
        found = attack_model(
            model, digits, given.attacks.split(","), epsilons=[given.epsilon], images_used=given.images
        )
        print(f"{name}: {found['clean_accuracy']:.0%} of {found['images']} digits as they are")
        for row in found["attacks"]:
            print(f"    under {row['attack']}, epsilon {row['epsilon']:g}: {row['accuracy']:.0%}")
        for warned in found["sanity"]:
            print(f"    careful: {warned['message']}")


if __name__ == "__main__":
    main()
