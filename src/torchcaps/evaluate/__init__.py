"""Evaluation: what a trained model is worth, on images that took no part in its training or selection."""

from torchcaps.evaluate.adversarial import attack_model, fast_gradient_curves
from torchcaps.evaluate.clean import evaluate_run

__all__ = ["attack_model", "evaluate_run", "fast_gradient_curves"]
