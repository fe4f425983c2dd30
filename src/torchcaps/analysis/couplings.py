r"""Couplings and votes: which positions vote for a class, coupling entropy, inactive capsules, and vote distances.

Couplings are propagated down from a class capsule to the primary capsules:

.. math:: q_i = \sum_j c_{ij} \, q_j, \qquad q = 1 \text{ for the class and } 0 \text{ for all others}

If the couplings of each child sum to one over its parents (dynamic and EM routing), q is the share of a capsule that
reaches the class. If those of each parent sum to one over its children (choi2019), q is the share of the class's
attention that the capsule receives. Couplings that are not normalized (chen2019, yang2021) give weights of any sign. A
vote map shows, for each position, the sum over the capsule types of q times the capsule's presence. Positions in more
windows have more paths to the class: with windows of 3 and stride 2 (choi2019) this shows as a grid.

Vote distances are those between the votes and the mean of the parent capsule, per iteration of EM routing (Hinton,
Sabour, Frosst: Matrix Capsules with EM Routing, 2018, https://openreview.net/forum?id=HJWLfGWRb, figures 2 and B.2):

.. math:: \delta_{ij}^{(t)} = | V_{ij} - \mu_j^{(t)} |, \quad \text{weighted by } R_{ij}^{(t)}

The paper zooms in on distances below 0.05, where its clusters are. How tight a cluster gets depends on the variance
floor. Here the zoomed histogram ends at the distance that contains half of all assignments after the last iteration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.analysis.inspection import LayerState, inspect_layers, presence
from torchcaps.errors import TorchcapsError
from torchcaps.functional import weighted_votes
from torchcaps.models import Model
from torchcaps.progress import Advance
from torchcaps.routing.em import EMRouting

INACTIVE_SHARE = 0.01
BINS = 40  # of the whole histogram of vote distances; the zoomed one has half as many
ZOOM = 0.5  # share of the assignments in the zoomed histogram
BATCH_SIZE = 10  # images; small, because inspecting a layer stores all its votes


def propagate_couplings(layers: list[LayerState], classes: Tensor, iteration: int) -> list[Tensor]:
    """Return q for the children of every layer, lowest first: (B, H, W, N) each.

    Args:
        classes: (B,), one class per image.
        iteration: counted from 0. Layers with fewer iterations use their last one.
    """
    top = layers[-1].couplings[0]
    reached = F.one_hot(classes, top.shape[1] * top.shape[3]).to(top).view(len(classes), top.shape[1], top.shape[3])
    found: list[Tensor] = []
    for layer in reversed(layers):
        couplings = layer.couplings[min(iteration, len(layer.couplings) - 1)]
        below = layer.scatter_to_children(torch.einsum("bpij,bpj->bpi", couplings, reached))
        found.insert(0, below)
        reached = below.flatten(1, 2)  # (B, H*W, N), the parents (B, P, J) of the layer below
    return found


def vote_maps(layers: list[LayerState], classes: Tensor, iteration: int) -> list[Tensor]:
    """Return the contribution of each position to a class, for the children of every layer: (B, H, W) each."""
    shares = propagate_couplings(layers, classes, iteration)
    return [(share * presence(layer.children)).sum(3) for share, layer in zip(shares, layers, strict=True)]


def class_share(layers: list[LayerState], classes: Tensor, iteration: int) -> Tensor:
    """Return the share of the total presence of the primary capsules that reaches a class: (B,)."""
    sent = vote_maps(layers, classes, iteration)[0].flatten(1).sum(1)
    return sent / presence(layers[0].children).flatten(1).sum(1).clamp_min(1e-30)


def is_normalized_over_parents(layer: LayerState) -> bool:
    """Return whether the couplings of each child sum to one over its parents."""
    return _sum_to_one(_sums(layer.couplings[0], _owners(layer)))


def with_even_couplings(layer: LayerState) -> LayerState:
    """Return the layer as if every child shared itself evenly among its parents: with one iteration."""
    ones, owner = torch.ones_like(layer.couplings[0]), _owners(layer)
    counts = _sums(ones, owner)[:, owner].view(ones.shape[:3])  # (B, P, I), the number of parents of each child
    return replace(layer, couplings=[ones / counts.unsqueeze(3)])


@dataclass(frozen=True)
class CouplingEntropy:
    """Mean entropy of a layer's couplings in one iteration.

    ``over`` is ``"parents"`` if the couplings of each child are a distribution over its parents, and ``"children"`` if
    those of each parent are one over its children. ``nats`` is the mean entropy. ``relative`` is the mean of the
    entropy divided by its maximum: 1 for equal couplings, 0 if one takes all, None if there is only one option.
    """

    over: str
    nats: float
    relative: float | None


def coupling_entropy(layer: LayerState) -> list[CouplingEntropy]:
    """Return the entropy per iteration. Couplings that are not normalized enter by absolute value over their sum."""
    first = layer.couplings[0]
    owner = _owners(layer)
    over = "children" if not is_normalized_over_parents(layer) and _sum_to_one(first.sum(2)) else "parents"
    return [_entropy(couplings.abs(), owner, over) for couplings in layer.couplings]


def _owners(layer: LayerState) -> Tensor:
    """Return the child of each slot, (P*I,). A slot that sums a whole window counts as a child of its own."""
    if layer.child_index.shape[2] > 1:
        return torch.arange(layer.child_index[..., 0].numel(), device=layer.child_index.device)
    owners: Tensor = layer.child_index.flatten().unique(return_inverse=True)[1]
    return owners


def _sums(couplings: Tensor, owner: Tensor) -> Tensor:
    """Sum the couplings of each child over all its parents: (B, P, I, J) to (B, children)."""
    flat = couplings.sum(3).flatten(1)
    return flat.new_zeros(len(flat), int(owner.max()) + 1).index_add_(1, owner, flat)


def _sum_to_one(sums: Tensor) -> bool:
    return bool((sums - 1).abs().max() < 1e-3)


def _entropy(couplings: Tensor, owner: Tensor, over: str) -> CouplingEntropy:
    """Compute the entropy as log S - (sum of w log w) / S for weights w with sum S, which avoids normalizing first."""
    terms = torch.special.xlogy(couplings, couplings)
    if over == "children":
        total, inner = couplings.sum(2), terms.sum(2)
        options = torch.full_like(total, couplings.shape[2])
    else:
        total, inner = _sums(couplings, owner), _sums(terms, owner)
        options = _sums(torch.ones_like(couplings), owner)
    entropy = torch.where(total > 0, total.clamp_min(1e-30).log() - inner / total.clamp_min(1e-30), 0.0)
    several = options > 1
    relative = (entropy / options.log())[several]
    return CouplingEntropy(over, float(entropy.mean()), float(relative.mean()) if several.any() else None)


@dataclass(frozen=True)
class CapsuleActivity:
    """How active the capsule types of one layer are over a set of images.

    Shapes: ``max_presence`` (N,); ``win_share`` (N,), the share of positions and images at which a type has the highest
    presence of all types.
    """

    name: str
    max_presence: Tensor
    win_share: Tensor

    @property
    def inactive(self) -> list[int]:
        """Types whose presence never reaches 1 % of the layer's maximum."""
        return torch.nonzero(self.max_presence < INACTIVE_SHARE * self.max_presence.max()).flatten().tolist()

    @property
    def never_highest(self) -> list[int]:
        """Types that never have the highest presence."""
        return torch.nonzero(self.win_share == 0).flatten().tolist()


def measure_activity(model: Model, images: Tensor, *, advance: Advance = lambda amount: None) -> list[CapsuleActivity]:
    """Measure the activity of the primary capsules and of every layer above, over images (B, C, H, W)."""
    peaks: dict[str, Tensor] = {}
    wins: dict[str, Tensor] = {}
    for part in images.split(BATCH_SIZE):
        _, layers = inspect_layers(model, part)
        groups = {"primary": layers[0].children} | {layer.name: layer.parents for layer in layers}
        for name, capsules in groups.items():
            present = presence(capsules).flatten(0, 2)  # (B*H*W, N)
            peak = present.amax(0)
            count = torch.bincount(present.argmax(1), minlength=present.shape[1])
            peaks[name] = torch.maximum(peaks.get(name, peak), peak)
            wins[name] = wins.get(name, torch.zeros_like(count)) + count
        advance(len(part))
    return [CapsuleActivity(name, peaks[name], wins[name] / wins[name].sum()) for name in peaks]


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
