"""Evaluation of trained models on test images: accuracy, robustness tests and adversarial attacks."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

# Imported when first used, so that training does not load attacks and matplotlib.
_MODULES = {
    "Request": "torchcaps.evaluate.robustness",
    "attack_model": "torchcaps.evaluate.adversarial",
    "evaluate_robustness": "torchcaps.evaluate.robustness",
    "evaluate_run": "torchcaps.evaluate.clean",
    "fast_gradient_curves": "torchcaps.evaluate.adversarial",
    "measure_affine": "torchcaps.evaluate.affine",
    "measure_overlap": "torchcaps.evaluate.overlap",
    "measure_viewpoints": "torchcaps.evaluate.viewpoint",
    "protocols": "torchcaps.evaluate.robustness",
    "save_evaluation": "torchcaps.evaluate.report",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
