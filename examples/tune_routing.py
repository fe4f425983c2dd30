"""Tune dynamic routing with Optuna: pip install -e '.[tune]'; python examples/tune_routing.py

Every trial trains a small CapsNet with its own number of iterations and learning rate. A callback prunes unpromising
trials after each validation. The test set is not used.
"""

import argparse
import tempfile
from pathlib import Path

import optuna

from torchcaps.train import Callback, fit_run, new_run, resolve


class Pruning(Callback):
    """Report every validation accuracy to Optuna and prune the trial if Optuna asks for it."""

    def __init__(self, trial: optuna.Trial) -> None:
        self.trial = trial

    def on_validation(self, row, model):
        self.trial.report(row.accuracy, row.step)
        if self.trial.should_prune():
            raise optuna.TrialPruned


def train(trial: optuna.Trial, settings: dict, folder: Path) -> float:
    """Train one trial and return its best validation accuracy."""
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
    print(f"validation accuracy {study.best_value:.2%} with {study.best_params}")


if __name__ == "__main__":
    main()
