r"""Which places of an image voted for a class, and how decided the couplings of a layer are.

Couplings are followed down from a class capsule to the lowest capsules:

.. math:: q_i = \sum_j c_{ij} \, q_j, \qquad q = 1 \text{ for the class and } 0 \text{ for all others}

Where each child shares itself out among its parents (dynamic and EM routing), q is the share of a capsule that ends up
in the class; where each parent shares out its attention (choi2019), q is the share of the class's attention that comes
down to the capsule. Couplings that are no shares (chen2019, yang2021) give weights of any sign. A picture shows, place
by place, the sum over the types of q times how present the capsule is. A place that more windows see has more ways up:
under windows of 3 with a stride of 2 (choi2019) this shows as a grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.analysis.inspection import LayerState, inspect_layers, presence
from torchcaps.models import Model
from torchcaps.progress import Advance


# MERGED Dead capsules: types that no image of a set brings to life.
def propagate_couplings(layers: list[LayerState], classes: Tensor, iteration: int) -> list[Tensor]:
    """q for the children of every layer, lowest first: (B, H, W, N) each.

    Args:
        classes: (B,), one class per image.
        iteration: counted from 0; layers with fewer iterations stay at their last.
    """
    top = layers[-1].couplings[0]
    reached = F.one_hot(classes, top.shape[1] * top.shape[3]).to(top).view(len(classes), top.shape[1], top.shape[3])
    found: list[Tensor] = []
    for layer in reversed(layers):
        couplings = layer.couplings[min(iteration, len(layer.couplings) - 1)]
        below = layer.spread(torch.einsum("bpij,bpj->bpi", couplings, reached))
        found.insert(0, below)
        reached = below.flatten(1, 2)  # (B, H*W, N): these children are the next layer's parents (B, P, J)
    return found


def vote_maps(layers: list[LayerState], classes: Tensor, iteration: int) -> list[Tensor]:
    """What each place gives to a class, for the children of every layer, lowest first: (B, H, W) each."""
    shares = propagate_couplings(layers, classes, iteration)
    return [(share * presence(layer.children)).sum(3) for share, layer in zip(shares, layers, strict=True)]


def class_share(layers: list[LayerState], classes: Tensor, iteration: int) -> Tensor:
    """The share of all that is present among the lowest capsules that comes to a class: (B,)."""
    sent = vote_maps(layers, classes, iteration)[0].flatten(1).sum(1)
    return sent / presence(layers[0].children).flatten(1).sum(1).clamp_min(1e-30)


def is_normalized_over_parents(layer: LayerState) -> bool:
    """Whether the couplings of each child sum to one over all its parents."""
    return _sum_to_one(_sums(layer.couplings[0], _owners(layer)))


@dataclass(frozen=True)
class CouplingEntropy:
    """Mean entropy of a layer's couplings in one iteration.

    ``over``: who shares out, each child among its ``parents`` or each parent among its ``children``. ``nats``: the
    mean over them. ``relative``: the same over the greatest possible, 1 for equal shares and 0 where one takes all;
    None where nobody has a choice.
    """

    over: str
    nats: float
    relative: float | None


def coupling_entropy(layer: LayerState) -> list[CouplingEntropy]:
    """The entropy for every iteration. Couplings that are no shares are taken by their size, divided by their sum."""
    first = layer.couplings[0]
    owner = _owners(layer)
    over = "children" if not is_normalized_over_parents(layer) and _sum_to_one(first.sum(2)) else "parents"
    return [_entropy(couplings.abs(), owner, over) for couplings in layer.couplings]


def _owners(layer: LayerState) -> Tensor:
    """Which child each slot belongs to, (P*I,); a slot with a whole window behind it is one of its own."""
    if layer.seen.shape[2] > 1:
        return torch.arange(layer.seen[..., 0].numel(), device=layer.seen.device)
    owners: Tensor = layer.seen.flatten().unique(return_inverse=True)[1]
    return owners


def _sums(couplings: Tensor, owner: Tensor) -> Tensor:
    """What all parents of a child have of it together: (B, P, I, J) to (B, children)."""
    flat = couplings.sum(3).flatten(1)
    return flat.new_zeros(len(flat), int(owner.max()) + 1).index_add_(1, owner, flat)


def _sum_to_one(sums: Tensor) -> bool:
    return bool((sums - 1).abs().max() < 1e-3)


def _entropy(couplings: Tensor, owner: Tensor, over: str) -> CouplingEntropy:
    """Written as log S - (sum of w log w) / S for weights w with sum S, so that nothing is divided first."""
    pieces = torch.special.xlogy(couplings, couplings)
    if over == "children":
        total, inner = couplings.sum(2), pieces.sum(2)
        options = torch.full_like(total, couplings.shape[2])
    else:
        total, inner = _sums(couplings, owner), _sums(pieces, owner)
        options = _sums(torch.ones_like(couplings), owner)
    entropy = torch.where(total > 0, total.clamp_min(1e-30).log() - inner / total.clamp_min(1e-30), 0.0)
    choice = options > 1
    relative = (entropy / options.log())[choice]
    return CouplingEntropy(over, float(entropy.mean()), float(relative.mean()) if choice.any() else None)


SILENT = 0.01
BATCH_SIZE = 10  # images: looking into a layer stores all its votes


@dataclass(frozen=True)
class CapsuleActivity:
    """One layer of capsule types.

    Shapes: ``greatest`` (N,), each type's greatest presence; ``first`` (N,), the share of places and images at which it
    is the most present one.
    """

    name: str
    greatest: Tensor
    first: Tensor

    @property
    def silent(self) -> list[int]:
        """Types that never reach a hundredth of the layer's greatest presence."""
        return torch.nonzero(self.greatest < SILENT * self.greatest.max()).flatten().tolist()

    @property
    def never_first(self) -> list[int]:
        """Types that are nowhere the most present one."""
        return torch.nonzero(self.first == 0).flatten().tolist()


def measure_activity(model: Model, images: Tensor, *, advance: Advance = lambda amount: None) -> list[CapsuleActivity]:
    """The primary capsules and every layer above, over the images (B, C, H, W)."""
    greatest: dict[str, Tensor] = {}
    wins: dict[str, Tensor] = {}
    for part in images.split(BATCH_SIZE):
        _, layers = inspect_layers(model, part)
        groups = {"primary": layers[0].children} | {layer.name: layer.parents for layer in layers}
        for name, capsules in groups.items():
            present = presence(capsules).flatten(0, 2)  # (B*H*W, N)
            peak = present.amax(0)
            count = torch.bincount(present.argmax(1), minlength=present.shape[1])
            greatest[name] = torch.maximum(greatest.get(name, peak), peak)
            wins[name] = wins.get(name, torch.zeros_like(count)) + count
        advance(len(part))
    return [CapsuleActivity(name, greatest[name], wins[name] / wins[name].sum()) for name in greatest]
