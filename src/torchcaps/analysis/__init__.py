"""Insight: what capsules hold, as data and as pictures."""

from torchcaps.analysis.alignment import measure_alignment, random_reference
from torchcaps.analysis.compactness import measure_compactness
from torchcaps.analysis.couplings import coupling_entropy, follow_couplings, measure_liveliness, vote_maps
from torchcaps.analysis.inspection import LayerState, inspect_layers
from torchcaps.analysis.perturbation import draw_with_decoder_of, perturb_dimensions
from torchcaps.analysis.votes import vote_histograms

__all__ = [
    "LayerState",
    "coupling_entropy",
    "draw_with_decoder_of",
    "follow_couplings",
    "inspect_layers",
    "measure_alignment",
    "measure_compactness",
    "measure_liveliness",
    "perturb_dimensions",
    "random_reference",
    "vote_histograms",
    "vote_maps",
]
