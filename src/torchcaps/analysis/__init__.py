"""Analysis of trained capsule networks: layer states, couplings, votes, perturbed capsules and affine sweeps."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchcaps.analysis.couplings import coupling_entropy, measure_activity, propagate_couplings, vote_maps
    from torchcaps.analysis.inspection import LayerState, inspect_layers
    from torchcaps.analysis.perturbation import perturb_dimensions, reconstruct_with
    from torchcaps.analysis.sweeps import measure_alignment, measure_compactness, random_reference
    from torchcaps.analysis.votes import vote_histograms

__all__ = [
    "LayerState",
    "coupling_entropy",
    "inspect_layers",
    "measure_activity",
    "measure_alignment",
    "measure_compactness",
    "perturb_dimensions",
    "propagate_couplings",
    "random_reference",
    "reconstruct_with",
    "vote_histograms",
    "vote_maps",
]

# Imported when first used, so that training does not load attacks and matplotlib.
_MODULES = {
    "LayerState": "torchcaps.analysis.inspection",
    "coupling_entropy": "torchcaps.analysis.couplings",
    "inspect_layers": "torchcaps.analysis.inspection",
    "measure_activity": "torchcaps.analysis.couplings",
    "measure_alignment": "torchcaps.analysis.sweeps",
    "measure_compactness": "torchcaps.analysis.sweeps",
    "perturb_dimensions": "torchcaps.analysis.perturbation",
    "propagate_couplings": "torchcaps.analysis.couplings",
    "random_reference": "torchcaps.analysis.sweeps",
    "reconstruct_with": "torchcaps.analysis.perturbation",
    "vote_histograms": "torchcaps.analysis.votes",
    "vote_maps": "torchcaps.analysis.couplings",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
