"""Analysis of trained capsule networks: layer states, couplings, votes, perturbed capsules and affine sweeps."""

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
