"""Evaluation: what a trained model is worth, on images that took no part in its training or selection."""

from torchcaps.evaluate.clean import evaluate_run

__all__ = ["evaluate_run"]
