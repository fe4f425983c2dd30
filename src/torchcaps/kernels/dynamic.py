"""Dynamic routing of a fully connected layer with its gradient written out.

Autograd would keep a gradient of the size of the votes for each of the 2T - 1 uses of the votes and add them up.
Here all of them come from one matrix product at the end, and every sum over children is a matrix product too:
"sum over children for parent j" is the j-th diagonal block of (J x I) @ (I x JD), which costs J times the
arithmetic and still takes less time than a loop that memory feeds.

The plain definition is ``routing.dynamic.route_plainly``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def unrolled_dynamic_routing(votes: Tensor, iterations: int, nonlinearity: Callable[[Tensor], Tensor]) -> Tensor:
    """Poses before the nonlinearity. Shapes: votes (B, I, J, D), result (B, J, D)."""
    pose: Tensor = _UnrolledDynamicRouting.apply(votes, iterations, nonlinearity)  # type: ignore[no-untyped-call]
    return pose


class _UnrolledDynamicRouting(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, votes: Tensor, iterations: int, nonlinearity: Callable[[Tensor], Tensor]) -> Tensor:
        types, size = votes.shape[2:]
        flat = votes.flatten(2)  # (B, I, JD)
        sums = [flat.sum(1).view(-1, types, size) / types]  # equal couplings need no weights
        shares: list[Tensor] = []
        logits: Tensor | None = None
        for _ in range(iterations - 1):
            agreed = _agree(flat, nonlinearity(sums[-1]))
            logits = agreed if logits is None else logits + agreed
            shares.append(logits.softmax(1))
            sums.append(_sum_children(shares[-1], flat, size))
        ctx.save_for_backward(votes, *shares, *sums[:-1])
        ctx.nonlinearity = nonlinearity
        return sums[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        votes, *kept = ctx.saved_tensors
        shares, sums = kept[: len(kept) // 2], kept[len(kept) // 2 :]
        batch, children, types, size = votes.shape
        flat = votes.flatten(2)
        # The gradient of the votes is a sum of outer products (children x pose): collect them, multiply once.
        left: list[Tensor] = []  # each (B, J, I)
        right: list[Tensor] = []  # each (B, J, D)
        logits_gradient: Tensor | None = None
        for share, earlier_sum in zip(reversed(shares), reversed(sums), strict=True):
            left.append(share)
            right.append(gradient)
            share_gradient = _agree(flat, gradient)
            through = share * (share_gradient - (share * share_gradient).sum(1, keepdim=True))
            logits_gradient = through if logits_gradient is None else logits_gradient + through
            with torch.enable_grad():
                leaf = earlier_sum.detach().requires_grad_()
                pose = ctx.nonlinearity(leaf)
            left.append(logits_gradient)
            right.append(pose.detach())
            (gradient,) = torch.autograd.grad(pose, leaf, _sum_children(logits_gradient, flat, size))
        left.append(flat.new_full((1, 1, 1), 1 / types).expand(batch, types, children))
        right.append(gradient)
        outer = torch.bmm(torch.cat(left, 1).transpose(1, 2), torch.cat([_blocks(each) for each in right], 1))
        return outer.view(batch, children, types, size), None, None


def _blocks(poses: Tensor) -> Tensor:
    """Each parent's pose in a row of its own, zero elsewhere: (B, J, D) to (B, J, JD)."""
    types = poses.shape[1]
    eye = torch.eye(types, dtype=poses.dtype, device=poses.device)
    return (eye.unsqueeze(2) * poses.unsqueeze(1)).flatten(2)


def _agree(flat_votes: Tensor, poses: Tensor) -> Tensor:
    """Scalar product of every vote with its parent: (B, I, JD) and (B, J, D) to (B, J, I)."""
    return torch.bmm(_blocks(poses), flat_votes.transpose(1, 2))


def _sum_children(weights: Tensor, flat_votes: Tensor, size: int) -> Tensor:
    """Weighted sum of votes for each parent: (B, J, I) and (B, I, JD) to (B, J, D)."""
    types = weights.shape[1]
    products = torch.bmm(weights, flat_votes).view(-1, types, types, size)
    return products.diagonal(dim1=1, dim2=2).transpose(1, 2)
