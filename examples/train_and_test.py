"""Train a CapsNet, test the checkpoint that validation chose, and use it: python examples/train_and_test.py"""

import argparse
from pathlib import Path

import torch

import torchcaps
from torchcaps.evaluate import evaluate_run
from torchcaps.train import fit_run, new_run, resolve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="glyphs", help="a name that 'torchcaps datasets' lists")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--train-images", type=int)
    parser.add_argument("--out", type=Path, default=Path("runs/train-and-test"), help="a folder that is not there yet")
    given = parser.parse_args()

    # Whatever is not named comes from the paper and the dataset; a wrong name is told before anything is trained.
    config = resolve(model="capsnet", data=given.data, epochs=given.epochs, train_images=given.train_images)
    run = new_run(config, given.out)
    fit_run(run)  # killed and called again with open_run(given.out), it goes on where it stood
    result = evaluate_run(run)
    print(f"{result['test_accuracy']:.2%} of {result['test_images']:,} test images are right")

    model = torchcaps.load(run.path)  # takes pixels in [0, 1]: any preparation is a part of it
    batch = torchcaps.load_dataset(given.data, "test").batch(torch.arange(5))
    with torch.no_grad():
        output = model(batch.images)
        drawn = model.reconstruct(output)  # what the winning capsule holds, as a picture
    for score, label, image, drawing in zip(output.scores, batch.labels, batch.images, drawn, strict=True):
        answer, truth = model.class_names[int(score.argmax())], model.class_names[int(label)]
        error = float((image - drawing).square().mean())
        print(f"truth {truth}, answer {answer}, length {float(score.max()):.2f}, error of the drawing {error:.3f}")


if __name__ == "__main__":
    main()
