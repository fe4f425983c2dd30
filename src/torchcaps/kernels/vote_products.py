"""Sums of votes on a CPU in one pass over them, and their gradients.

PyTorch computes ``torch.einsum`` over the children, parent by parent, as many small matrix products, for which it
copies the votes of each. ``sum_votes``, ``compare_votes`` and ``spread_poses`` are each other's gradients;
``sum_squares`` and ``measure_distances`` are so with respect to precision and couplings. The plain definitions are
those of ``torchcaps.functional``; a test compares the two.

Shapes: votes (B, P, I, J, D), couplings (B, P, I, J), poses (B, P, J, D).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchcaps.kernels.dispatch import on_threads, runs_fused

LANES = 16  # numbers that are computed at once


def products_apply(votes: Tensor, other: Tensor) -> bool:
    """Whether the loops support these votes, and the couplings or poses: whole lanes, float32 on a CPU."""
    return runs_fused(votes, other) and votes.ndim == 5 and votes.shape[4] % LANES == 0 < votes.numel()


def sum_votes(couplings: Tensor, votes: Tensor) -> Tensor:
    """Votes weighted by couplings, summed over the children: (B, P, J, D)."""
    result: Tensor = _SumVotes.apply(couplings, votes)  # type: ignore[no-untyped-call]
    return result


def compare_votes(votes: Tensor, poses: Tensor) -> Tensor:
    """Scalar product of each vote with its parent's pose: (B, P, I, J)."""
    result: Tensor = _CompareVotes.apply(votes, poses)  # type: ignore[no-untyped-call]
    return result


def spread_poses(couplings: Tensor, poses: Tensor) -> Tensor:
    """Pose of each parent multiplied with each coupling: (B, P, I, J, D)."""
    result: Tensor = _SpreadPoses.apply(couplings, poses)  # type: ignore[no-untyped-call]
    return result


def sum_squares(couplings: Tensor, votes: Tensor, poses: Tensor) -> Tensor:
    """Squared differences of votes and poses, weighted by couplings and summed over the children: (B, P, J, D)."""
    result: Tensor = _SumSquares.apply(couplings, votes, poses)  # type: ignore[no-untyped-call]
    return result


def measure_distances(votes: Tensor, poses: Tensor, precision: Tensor) -> Tensor:
    """Squared differences of votes and poses, weighted by a precision (B, P, J, D) and summed over it: (B, P, I, J)."""
    result: Tensor = _MeasureDistances.apply(votes, poses, precision)  # type: ignore[no-untyped-call]
    return result


class _SumVotes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, couplings: Tensor, votes: Tensor) -> Tensor:
        from torchcaps.kernels.vote_product_loops import sum_over_children

        ctx.save_for_backward(couplings, votes)
        batch, positions, _, parents, size = votes.shape
        result = votes.new_empty(batch, positions, parents, size)
        given = _rows(couplings), _lanes(votes), _lanes(result)
        on_threads(lambda first, last: sum_over_children(*given, first, last), batch * positions)
        return result

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        couplings, votes = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        dcouplings = compare_votes(votes, slopes) if wanted[0] else None
        return dcouplings, spread_poses(couplings, slopes) if wanted[1] else None


class _CompareVotes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, votes: Tensor, poses: Tensor) -> Tensor:
        from torchcaps.kernels.vote_product_loops import multiply_with_poses

        ctx.save_for_backward(votes, poses)
        result = votes.new_empty(votes.shape[:4])
        given = _lanes(votes), _lanes(poses), _rows(result)
        on_threads(lambda first, last: multiply_with_poses(*given, first, last), votes.shape[:2].numel())
        return result

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        votes, poses = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        dvotes = spread_poses(slopes, poses) if wanted[0] else None
        return dvotes, sum_votes(slopes, votes) if wanted[1] else None


class _SpreadPoses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, couplings: Tensor, poses: Tensor) -> Tensor:
        from torchcaps.kernels.vote_product_loops import multiply_with_couplings

        ctx.save_for_backward(couplings, poses)
        result = poses.new_empty(*couplings.shape, poses.shape[3])
        given = _rows(couplings), _lanes(poses), _lanes(result)
        on_threads(lambda first, last: multiply_with_couplings(*given, first, last), couplings.shape[:2].numel())
        return result

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        couplings, poses = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        dcouplings = compare_votes(slopes, poses) if wanted[0] else None
        return dcouplings, sum_votes(couplings, slopes) if wanted[1] else None


class _SumSquares(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, couplings: Tensor, votes: Tensor, poses: Tensor) -> Tensor:
        from torchcaps.kernels.vote_product_loops import sum_squared_differences

        ctx.save_for_backward(couplings, votes, poses)
        result = torch.empty(poses.shape)
        given = _rows(couplings), _lanes(votes), _lanes(poses), _lanes(result)
        on_threads(lambda first, last: sum_squared_differences(*given, first, last), votes.shape[:2].numel())
        return result

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        couplings, votes, poses = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        dcouplings = measure_distances(votes, poses, slopes) if wanted[0] else None
        return dcouplings, *_difference_gradients(couplings, votes, poses, slopes, wanted[1:])


class _MeasureDistances(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, votes: Tensor, poses: Tensor, precision: Tensor) -> Tensor:
        from torchcaps.kernels.vote_product_loops import weigh_squared_differences

        ctx.save_for_backward(votes, poses, precision)
        result = torch.empty(votes.shape[:4])
        given = _lanes(votes), _lanes(poses), _lanes(precision), _rows(result)
        on_threads(lambda first, last: weigh_squared_differences(*given, first, last), votes.shape[:2].numel())
        return result

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        votes, poses, precision = ctx.saved_tensors
        wanted = ctx.needs_input_grad
        dprecision = sum_squares(slopes, votes, poses) if wanted[2] else None
        return *_difference_gradients(slopes, votes, poses, precision, wanted[:2]), dprecision


def _difference_gradients(
    couplings: Tensor, votes: Tensor, poses: Tensor, factors: Tensor, wanted: tuple[bool, ...]
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the votes and poses of the sum over all of couplings * factors * (votes - poses) squared."""
    if not any(wanted):
        return None, None
    if torch.is_grad_enabled():  # create_graph=True
        dvotes = 2 * couplings.unsqueeze(4) * factors.unsqueeze(2) * (votes - poses.unsqueeze(2))
        return dvotes if wanted[0] else None, -dvotes.sum(2) if wanted[1] else None
    from torchcaps.kernels.vote_product_loops import difference_gradients

    dvotes, dposes = torch.empty(votes.shape), torch.empty(poses.shape)
    given = _rows(couplings), _lanes(votes), _lanes(poses), _lanes(factors), _lanes(dvotes), _lanes(dposes)
    on_threads(lambda first, last: difference_gradients(*given, first, last), votes.shape[:2].numel())
    return dvotes if wanted[0] else None, dposes if wanted[1] else None


def _rows(couplings: Tensor) -> Any:
    """Couplings as an array (B*P, I, J)."""
    return couplings.detach().contiguous().flatten(0, 1).numpy()


def _lanes(values: Tensor) -> Any:
    """Votes or poses as an array (B*P, ..., D/16, 16)."""
    return values.detach().contiguous().flatten(0, 1).unflatten(-1, (-1, LANES)).numpy()
