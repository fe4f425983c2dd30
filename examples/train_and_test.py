"""Train a CapsNet, test the best checkpoint and use the model: python examples/train_and_test.py"""

import argparse
from pathlib import Path

import torch

import torchcaps
from torchcaps.evaluate import evaluate_run
from torchcaps.train import fit_run, new_run, resolve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="glyphs", help="dataset, see 'torchcaps datasets'")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--train-images", type=int)
    parser.add_argument("--out", type=Path, default=Path("runs/train-and-test"), help="new run directory")
    given = parser.parse_args()

    # Other settings default to those of the paper and the dataset. Invalid settings raise an error here.
    config = resolve(model="capsnet", data=given.data, epochs=given.epochs, train_images=given.train_images)
    run = new_run(config, given.out)
    fit_run(run)  # after an interruption, fit_run(open_run(given.out)) resumes
    result = evaluate_run(run)
    print(f"test accuracy {result['test_accuracy']:.2%} on {result['test_images']:,} images")

    model = torchcaps.load(run.path)  # takes pixels in [0, 1]; preprocessing is part of the model
    batch = torchcaps.load_dataset(given.data, "test").batch(torch.arange(5))
    with torch.no_grad():
        output = model(batch.images)
        reconstructions = model.reconstruct(output)  # from the predicted class capsule
    for score, label, image, reconstruction in zip(
        output.scores, batch.labels, batch.images, reconstructions, strict=True
    ):
        prediction, truth = model.class_names[int(score.argmax())], model.class_names[int(label)]
        error = float((image - reconstruction).square().mean())
        print(f"label {truth}, predicted {prediction}, length {float(score.max()):.2f}, squared error {error:.3f}")


if __name__ == "__main__":
    main()
