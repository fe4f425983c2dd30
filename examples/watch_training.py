"""Monitor training with your own callback: python examples/watch_training.py

Prints the mean length of the capsules of the true class and of the other classes at every validation. Callbacks do not
change training: the run ends with bit-identical weights.
"""

import argparse
import tempfile
from pathlib import Path

import torch

from torchcaps.train import Callback, fit_run, new_run, resolve, training_splits


class Lengths(Callback):
    """Print the mean capsule length of the true class and of the other classes."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def on_step(self, row):
        if row.step % 20 == 0:
            print(f"step {row.step}: loss {row.loss:.3f}")

    def on_validation(self, row, model):
        scores = model(self.images).scores
        true = torch.nn.functional.one_hot(self.labels, model.classes).bool()
        print(f"step {row.step}: accuracy {row.accuracy:.1%}, true class {scores[true].mean():.2f}, ", end="")
        print(f"others {scores[~true].mean():.2f}")

    def on_end(self, progress, model):
        print(f"done after {progress.seconds:.1f} s; best at step {progress.best_step}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="glyphs")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--train-images", type=int, default=2000)
    given = parser.parse_args()
    config = resolve(model="capsnet", data=given.data, epochs=given.epochs, train_images=given.train_images)
    _, validation = training_splits(config)
    batch = validation.batch(torch.arange(min(100, len(validation))))
    with tempfile.TemporaryDirectory() as folder:
        fit_run(new_run(config, Path(folder) / "run"), callbacks=[Lengths(batch.images, batch.labels)])


if __name__ == "__main__":
    main()
