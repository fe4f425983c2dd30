"""Insight: what capsules hold, as data and as pictures."""

from torchcaps.analysis.perturbation import perturb_dimensions

__all__ = ["perturb_dimensions"]
