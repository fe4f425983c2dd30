"""Analysis of trained capsule networks: layer states, couplings, votes, perturbed capsules and affine sweeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchcaps.runtime import lazy_exports

if TYPE_CHECKING:
    from torchcaps.analysis.couplings import (
        coupling_entropy,
        measure_activity,
        propagate_couplings,
        vote_histograms,
        vote_maps,
    )
    from torchcaps.analysis.inspection import LayerState, inspect_layers
    from torchcaps.analysis.perturbation import perturb_dimensions, reconstruct_with
    from torchcaps.analysis.sweeps import measure_alignment, measure_compactness, random_reference

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

# Imported when first used, so that training loads neither attacks nor matplotlib.
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "couplings": ("coupling_entropy", "measure_activity", "propagate_couplings", "vote_histograms", "vote_maps"),
        "inspection": ("LayerState", "inspect_layers"),
        "perturbation": ("perturb_dimensions", "reconstruct_with"),
        "sweeps": ("measure_alignment", "measure_compactness", "random_reference"),
    },
)
