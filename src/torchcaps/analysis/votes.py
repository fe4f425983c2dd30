r"""Distances between votes and the mean of the parent capsule, per iteration of EM routing.

Hinton, Sabour, Frosst: Matrix Capsules with EM Routing, 2018, https://openreview.net/forum?id=HJWLfGWRb, figures 2
and B.2.

.. math:: \delta_{ij}^{(t)} = | V_{ij} - \mu_j^{(t)} |, \quad \text{weighted by } R_{ij}^{(t)}

The paper zooms in on distances below 0.05, where its clusters are. How tight a cluster gets depends on the variance
floor. Here the zoomed histogram ends at the distance that contains half of all assignments after the last iteration.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchcaps.analysis.inspection import LayerState, inspect_layers
from torchcaps.errors import TorchcapsError
from torchcaps.functional import weighted_votes
from torchcaps.models import Model
from torchcaps.routing.em import EMRouting

BINS = 40  # of the whole histogram; the zoomed one has half as many
ZOOM = 0.5  # share of the assignments in the zoomed histogram


def vote_distances(layer: LayerState) -> list[Tensor]:
    """Return the distance of each vote to its parent's mean, one (B, P, I, J) per iteration.

    As in the M-step, the mean is that of the votes weighted by assignment and child activation.
    """
    routing = layer.routing
    if not isinstance(routing, EMRouting):
        raise TorchcapsError(f"{type(routing).__name__} has no means of votes: vote distances need EM routing")
    if layer.votes is None or layer.children.activation is None:
        raise TorchcapsError("vote distances need the votes: call inspect_layers with votes=True")
    active = layer.children.activation.flatten(1)[:, layer.child_index.squeeze(2)]  # (B, P, I)
    mean: Tensor | None = None
    distances = []
    for assignment in layer.couplings:
        weights = assignment * active.unsqueeze(3) + routing.mass_floor / active.shape[2]  # (B, P, I, J)
        new_mean = weighted_votes(weights / weights.sum(2, keepdim=True), layer.votes)  # (B, P, J, D)
        mean = new_mean if mean is None else torch.lerp(new_mean, mean, routing.mean_damping)
        distances.append((layer.votes - mean.unsqueeze(2)).norm(dim=4))
    return distances


def vote_histograms(model: Model, images: Tensor, *, bins: int = BINS) -> dict[str, Any]:
    """Compute weighted histograms of the distances to every class capsule.

    ``zoomed`` and ``whole`` hold the ``edges`` of the bins and ``weights`` [image][iteration][class][bin].

    Shapes: images (B, C, H, W).
    """
    output, layers = inspect_layers(model, images, votes=True)
    distances = torch.stack(vote_distances(layers[-1]), 1).flatten(2, 3)  # (B, T, P*I, J)
    weights = torch.stack(layers[-1].couplings, 1).flatten(2, 3)
    last, order = distances[:, -1].flatten().sort()
    assigned = weights[:, -1].flatten()[order].cumsum(0)
    near = float(last[int(torch.searchsorted(assigned, ZOOM * assigned[-1]))])
    return {
        "zoomed": _histograms(distances, weights, near, bins // 2),
        "whole": _histograms(distances, weights, float(distances.max()), bins),
        "scores": output.scores.tolist(),
        "mean_distance": ((distances * weights).sum((0, 2, 3)) / weights.sum((0, 2, 3))).tolist(),
    }


def _histograms(distances: Tensor, weights: Tensor, reach: float, bins: int) -> dict[str, Any]:
    """Sum the weights in equal bins from 0 to ``reach``: (B, T, I, J) to [image][iteration][class][bin]."""
    index = (distances / max(reach, 1e-12) * bins).long()
    inside = torch.where(distances <= reach, weights, 0.0)
    counts = weights.new_zeros(*weights.shape[:2], weights.shape[3], bins)
    counts.scatter_add_(3, index.clamp(max=bins - 1).transpose(2, 3), inside.transpose(2, 3))
    return {"edges": torch.linspace(0, reach, bins + 1).tolist(), "weights": counts.tolist()}
