"""Insight: what capsules hold, as data and as pictures."""

from torchcaps.analysis.alignment import measure_alignment, random_reference
from torchcaps.analysis.compactness import measure_compactness
from torchcaps.analysis.couplings import coupling_entropy, measure_activity, propagate_couplings, vote_maps
from torchcaps.analysis.inspection import LayerState, inspect_layers
from torchcaps.analysis.perturbation import perturb_dimensions, reconstruct_with
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
