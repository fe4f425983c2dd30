"""Evaluation: what a trained model is worth, on images that took no part in its training or selection."""

from torchcaps.evaluate.adversarial import attack_model, fast_gradient_curves
from torchcaps.evaluate.affine import measure_affine
from torchcaps.evaluate.clean import evaluate_run
from torchcaps.evaluate.overlap import measure_overlap
from torchcaps.evaluate.report import save_evaluation
from torchcaps.evaluate.robustness import Request, evaluate_robustness, protocols
from torchcaps.evaluate.viewpoint import measure_viewpoints

__all__ = [
    "Request",
    "attack_model",
    "evaluate_robustness",
    "evaluate_run",
    "fast_gradient_curves",
    "measure_affine",
    "measure_overlap",
    "measure_viewpoints",
    "protocols",
    "save_evaluation",
]
