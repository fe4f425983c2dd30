"""Votes of 4x4 pose matrices on a CPU: V = M W for each pair of child and parent, in the order that routings read.

A matrix product per child, as PyTorch has it, leaves the votes child by child, and the copy to image by image takes
longer than the product. Here the 16 numbers of a pose are one vector of the processor. The plain definition is
``layers.transform.matrix_votes``; a test compares the two.

Shapes: poses (B, P, I, 16), weight (I, 4, J*4), votes (B, P, I, J, 16).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchcaps.kernels.dispatch import on_threads, runs_fused

SIDE, LANES = 4, 16


def fused_votes_apply(poses: Tensor, weight: Tensor) -> bool:
    """Whether the loops support this case: float32 on a CPU."""
    return runs_fused(poses, weight) and poses.numel() > 0


def fused_votes(poses: Tensor, weight: Tensor, plain: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Multiply poses (B, P, I, 16) with matrices (I, 4, J*4); ``plain`` is used for second derivatives."""
    result: Tensor = _MatrixVotes.apply(poses, weight, plain)  # type: ignore[no-untyped-call]
    return result


class _MatrixVotes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, poses: Tensor, weight: Tensor, plain: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        from torchcaps.kernels.matrix_vote_loops import multiply_poses

        ctx.save_for_backward(poses, weight)
        ctx.plain = plain
        batch, positions, slots, _ = poses.shape
        matrices = weight.detach().view(slots, SIDE, -1, SIDE)  # (I, 4, J, 4)
        repeated = matrices.transpose(1, 2).repeat(1, 1, 1, SIDE)  # (I, J, 4, 16): row k in all rows
        result = poses.new_empty(batch, positions, slots, matrices.shape[2], LANES)
        given = _rows(poses), repeated.numpy(), _rows(result)
        on_threads(lambda first, last: multiply_poses(*given, first, last), batch * positions)
        return result

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, ...]:
        from torchcaps.kernels.matrix_vote_loops import add_weight_gradients, pose_gradients

        poses, weight = ctx.saved_tensors
        wanted = ctx.needs_input_grad[:2]
        if torch.is_grad_enabled():  # create_graph=True
            inputs = [each for each, needed in zip((poses, weight), wanted, strict=True) if needed]
            found = iter(torch.autograd.grad(ctx.plain(poses, weight), inputs, slopes, create_graph=True))
            return *(next(found) if needed else None for needed in wanted), None
        dposes = dweight = None
        gradient, images = _rows(slopes), poses.shape[:2].numel()
        slots, parents = slopes.shape[2:4]
        if wanted[0]:
            matrices = weight.detach().view(slots, SIDE, parents, SIDE)
            repeated = matrices.permute(0, 2, 3, 1).repeat(1, 1, 1, SIDE)  # (I, J, 4, 16): column k in all rows
            dposes = torch.empty(poses.shape)
            target = _rows(dposes)
            on_threads(lambda first, last: pose_gradients(gradient, repeated.numpy(), target, first, last), images)
        if wanted[1]:
            source = _rows(poses)

            def some_images(first: int, last: int) -> Tensor:
                result: Tensor = poses.new_zeros(slots, parents, LANES)
                add_weight_gradients(source, gradient, result.numpy(), first, last)
                return result

            total = torch.stack(on_threads(some_images, images)).sum(0).view(slots, parents, SIDE, SIDE)
            dweight = total.transpose(1, 2).reshape(weight.shape)
        return dposes, dweight, None


def _rows(values: Tensor) -> Any:
    """Poses (B, P, ...) as an array (B*P, ...)."""
    return values.detach().contiguous().flatten(0, 1).numpy()
