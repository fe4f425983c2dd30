"""Evaluation of trained models on test images: accuracy, robustness tests and adversarial attacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchcaps.runtime import lazy_exports

if TYPE_CHECKING:
    from torchcaps.evaluate.adversarial import attack_model, fast_gradient_curves
    from torchcaps.evaluate.affine import measure_affine
    from torchcaps.evaluate.clean import evaluate_run
    from torchcaps.evaluate.detection import measure_detection
    from torchcaps.evaluate.folder import evaluate_folder
    from torchcaps.evaluate.overlap import measure_overlap
    from torchcaps.evaluate.report import save_evaluation
    from torchcaps.evaluate.robustness import Request, evaluate_robustness, protocols
    from torchcaps.evaluate.viewpoint import measure_viewpoints

__all__ = [
    "Request",
    "attack_model",
    "evaluate_folder",
    "evaluate_robustness",
    "evaluate_run",
    "fast_gradient_curves",
    "measure_affine",
    "measure_detection",
    "measure_overlap",
    "measure_viewpoints",
    "protocols",
    "save_evaluation",
]

# Imported when first used, so that training loads neither attacks nor matplotlib.
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "adversarial": ("attack_model", "fast_gradient_curves"),
        "affine": ("measure_affine",),
        "clean": ("evaluate_run",),
        "detection": ("measure_detection",),
        "folder": ("evaluate_folder",),
        "overlap": ("measure_overlap",),
        "report": ("save_evaluation",),
        "robustness": ("Request", "evaluate_robustness", "protocols"),
        "viewpoint": ("measure_viewpoints",),
    },
)
