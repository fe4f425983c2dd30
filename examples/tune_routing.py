"""Find good settings of dynamic routing with Optuna: pip install 'torchcaps[tune]'; python examples/tune_routing.py

Every trial trains a small CapsNet with its own number of iterations and learning rate. Trials that fall behind the
others at a validation are ended early, through the callback that a training takes. The test images take no part.
"""

import argparse
import tempfile
from pathlib import Path

import optuna

from torchcaps.train import Callback, fit_run, new_run, resolve


class Pruning(Callback):
    """Tells Optuna about every validation, and stops where Optuna sees no hope."""

    def __init__(self, trial: optuna.Trial) -> None:
        self.trial = trial

    def on_validation(self, line, model):
        self.trial.report(line.accuracy, line.step)
        if self.trial.should_prune():
            raise optuna.TrialPruned


def train(trial: optuna.Trial, settings: dict, folder: Path) -> float:
    """The best validation accuracy of one trial."""
    iterations = trial.suggest_int("iterations", 1, 5)
    rate = trial.suggest_float("learning_rate", 1e-4, 1e-2, log=True)
    options = {"routing": "dynamic", "routing_options": {"iterations": iterations}, "filters": 16, "types": 4}
    config = resolve(model="capsnet", options=options, learning_rate=rate, **settings)
    return fit_run(new_run(config, folder / f"trial-{trial.number}"), callbacks=[Pruning(trial)]).best_accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="glyphs")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--train-images", type=int, default=1500)
    given = parser.parse_args()
    settings = {"data": given.data, "epochs": given.epochs, "train_images": given.train_images}
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    with tempfile.TemporaryDirectory() as folder:
        study.optimize(lambda trial: train(trial, settings, Path(folder)), n_trials=given.trials)
    print(f"{study.best_value:.2%} of the validation images with {study.best_params}")


if __name__ == "__main__":
    main()
