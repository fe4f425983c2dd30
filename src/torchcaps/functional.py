"""Stateless capsule operations: squash, softmax over parents, weighted votes, agreement.

Shapes: B batch, P parent positions, I child slots of a position, J parent types, D pose size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchcaps.kernels.dispatch import runs_compiled
from torchcaps.kernels.vote_products import compare_votes, measure_distances, products_apply, sum_squares, sum_votes

__all__ = [
    "agreement",
    "clamp_votes",
    "common_agreement",
    "commonly_weighted_votes",
    "digamma",
    "exponential_squash",
    "log_odds",
    "safe_norm",
    "softmax_over_parents",
    "squared_distance",
    "squash",
    "weighted_squares",
    "weighted_votes",
]

TINY = 1e-30  # negligible as a length, but a normal float32 number
HALF_PRECISION = (torch.float16, torch.bfloat16)  # converted to float32, because TINY is zero in float16


def safe_norm(vectors: Tensor, dim: int = -1, keepdim: bool = False) -> Tensor:
    """Euclidean norm with a finite gradient at zero, which does not overflow for finite vectors.

    >>> safe_norm(torch.tensor([[3.0, 4.0], [3e30, 4e30]]))
    tensor([5.0000e+00, 5.0000e+30])
    """
    if vectors.dtype in HALF_PRECISION:
        return safe_norm(vectors.float(), dim, keepdim).to(vectors.dtype)
    peak = vectors.detach().abs().amax(dim, keepdim=True).clamp_min(TINY)
    squares = (vectors / peak).square().sum(dim, keepdim=True)
    norm = peak * squares.clamp_min(TINY).sqrt()
    return norm if keepdim else norm.squeeze(dim)


def squash(vectors: Tensor, dim: int = -1) -> Tensor:
    r"""Shrink vectors to a length below one, keeping their direction (sabour2017, equation 1).

    .. math:: v = \frac{|s|^2}{1 + |s|^2} \frac{s}{|s|}

    Computed as s / (|s| + 1/|s|), which neither overflows for long vectors nor divides by zero for short ones.

    >>> squash(torch.tensor([3.0, 4.0])).norm()  # 25 / 26
    tensor(0.9615)
    """
    if vectors.dtype in HALF_PRECISION:
        return squash(vectors.float(), dim).to(vectors.dtype)
    norm = safe_norm(vectors, dim, keepdim=True).clamp_min(1e-15)  # keeps 1/|s| and its gradient finite
    return vectors / (norm + 1.0 / norm)


def exponential_squash(vectors: Tensor, dim: int = -1) -> Tensor:
    r"""Shrink vectors to a length below one; short vectors shrink less than with squash (chen2019, section 3.2).

    .. math:: v' = \left(1 - e^{-|v|}\right) \frac{v}{|v|}

    >>> exponential_squash(torch.tensor([3.0, 4.0])).norm()  # 1 - exp(-5)
    tensor(0.9933)
    """
    if vectors.dtype in HALF_PRECISION:
        return exponential_squash(vectors.float(), dim).to(vectors.dtype)
    norm = safe_norm(vectors, dim, keepdim=True).clamp_min(1e-12)  # the factor is 1 for shorter vectors
    return vectors * (-torch.expm1(-norm) / norm)


def softmax_over_parents(logits: Tensor, child_index: Tensor | None = None) -> Tensor:
    """Softmax over ALL parents of each child: every type at every position that sees the child.

    Dynamic and EM routing use it. In a convolutional layer several positions see a child, fewer at the border; the
    couplings of a child sum to one over all of them together.

    Args:
        logits: (B, P, I, J).
        child_index: (P, I), the child in slot i of position p, numbered from 0 without gaps. None if every slot is a
            separate child, as in a fully connected layer.
    """
    if child_index is None:
        # Transposed, because the softmax vectorizes better with the children last.
        return logits.transpose(2, 3).softmax(2).transpose(2, 3)
    batch, positions, slots, types = logits.shape
    owner = child_index.reshape(1, -1).expand(batch, -1)  # (B, P*I)
    flat = logits.reshape(batch, positions * slots, types)
    count = positions * slots  # an upper bound: the exact number would have to be read from a tensor
    start = flat.new_full((batch, count), -torch.inf)
    peak = start.scatter_reduce(1, owner, flat.detach().amax(2), "amax")  # (B, children)
    weights = (flat - peak.gather(1, owner).unsqueeze(2)).exp()
    total = flat.new_zeros(batch, count).scatter_add(1, owner, weights.sum(2))
    return (weights / total.gather(1, owner).unsqueeze(2)).view_as(logits)


def weighted_votes(couplings: Tensor, votes: Tensor) -> Tensor:
    """Sum votes weighted by couplings: (B, P, I, J) and (B, P, I, J, D) to (B, P, J, D)."""
    if products_apply(votes, couplings):
        return sum_votes(couplings, votes)
    return torch.einsum("bpij,bpijd->bpjd", couplings, votes)


def commonly_weighted_votes(couplings: Tensor, votes: Tensor) -> Tensor:
    """:func:`weighted_votes` for couplings shared by all images: (P, I, J) and (B, P, I, J, D) to (B, P, J, D).

    In a fully connected layer this is one matrix product over the votes in their memory layout, child by child. It also
    weights every parent's votes by the other parents' couplings, which is still faster than copying the votes.
    """
    batch, positions, children, parents, size = votes.shape
    if positions > 1:
        return torch.einsum("pij,bpijd->bpjd", couplings, votes)
    by_child = votes.squeeze(1).transpose(0, 1).reshape(children, -1)  # (I, B*J*D), a view after a dense transform
    sums = (couplings.squeeze(0).t() @ by_child).view(parents, batch, parents, size)
    return sums.diagonal(dim1=0, dim2=2).transpose(1, 2).unsqueeze(1)  # (B, 1, J, D)


def agreement(votes: Tensor, poses: Tensor) -> Tensor:
    """Scalar product of each vote with its parent's pose: (B, P, I, J, D) and (B, P, J, D) to (B, P, I, J)."""
    if products_apply(votes, poses):
        return compare_votes(votes, poses)
    return torch.einsum("bpijd,bpjd->bpij", votes, poses)


def weighted_squares(couplings: Tensor, votes: Tensor, poses: Tensor) -> Tensor:
    """Sum squared differences of votes (B, P, I, J, D) and poses (B, P, J, D), weighted by couplings (B, P, I, J).

    Returns (B, P, J, D): with the mean of the votes as poses, their variances.
    """
    if products_apply(votes, couplings):
        return sum_squares(couplings, votes, poses)
    return torch.einsum("bpij,bpijd->bpjd", couplings, (votes - poses.unsqueeze(2)).square())


def squared_distance(votes: Tensor, poses: Tensor, precision: Tensor) -> Tensor:
    """Squared distance of each vote (B, P, I, J, D) from its parent's pose (B, P, J, D), weighted: (B, P, I, J).

    ``precision``, (B, P, J, D), is the weight of each pose element.
    """
    if products_apply(votes, poses):
        return measure_distances(votes, poses, precision)
    return torch.einsum("bpijd,bpjd->bpij", (votes - poses.unsqueeze(2)).square(), precision)


def clamp_votes(votes: Tensor, largest: float) -> Tensor:
    """Clamp votes to [-largest, largest], so that sums of squares do not overflow; as they are if none is larger."""
    if runs_compiled(votes) and votes.numel():
        votes = votes.contiguous()  # a transform may return a view, which every later pass would copy
        low, high = votes.detach().aminmax()
        if low >= -largest and high <= largest:
            return votes
    return votes.clamp(-largest, largest)


def common_agreement(votes: Tensor, poses: Tensor) -> Tensor:
    """:func:`agreement` summed over the batch: (B, P, I, J, D) and (B, P, J, D) to (P, I, J).

    In a fully connected layer this is one matrix product, as in :func:`commonly_weighted_votes`.
    """
    positions, children, parents = votes.shape[1:4]
    if positions > 1:
        return torch.einsum("bpijd,bpjd->pij", votes, poses)
    by_child = votes.squeeze(1).transpose(0, 1).reshape(children, -1)  # (I, B*J*D)
    # (B, J, D, J), zero except for the parent's own pose.
    own = torch.diag_embed(poses.squeeze(1).transpose(1, 2)).transpose(1, 2)
    return (by_child @ own.reshape(-1, parents)).unsqueeze(0)


def digamma(values: Tensor) -> Tensor:
    """Digamma function of values of at least 1, as a series that torch.export and ONNX support.

    >>> digamma(torch.tensor([1.0, 2.0]))  # the first is minus Euler's constant
    tensor([-0.5772,  0.4228])
    """
    shifted, sums = values, torch.zeros_like(values)
    for _ in range(7):
        sums = sums + 1 / shifted
        shifted = shifted + 1
    square = 1 / shifted.square()
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square * (1 / 240 - square / 132))))
    return shifted.log() - 0.5 / shifted - series - sums


def log_odds(probability: Tensor) -> Tensor:
    """Logit of a probability, clamped so that it is finite at 0 and 1."""
    if probability.dtype in HALF_PRECISION:
        return log_odds(probability.float()).to(probability.dtype)
    margin = torch.finfo(probability.dtype).eps
    return probability.clamp(margin, 1 - margin).logit()
