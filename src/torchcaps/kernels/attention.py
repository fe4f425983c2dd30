"""Fused attention routing on a CPU: no copy of the votes, and a hand-written gradient.

The logits of all parents are one matrix product of the votes in their memory layout with a matrix that has the kernel
of each parent on its diagonal. It multiplies by zeros, too, which for up to 64 pairs of child and parent is as fast
as copying the votes parent by parent, or faster; for 1,920 pairs it is 16 times slower. The plain definition is
``routing.attention.attend_plainly``; a test compares the two.

Letters: R = B * P rows, I children, J parents, D pose size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchcaps.kernels.dispatch import fused_is_chosen, on_threads, runs_compiled

MOST_PAIRS = 64
Attend = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def fused_attention_applies(votes: Tensor, kernel: Tensor) -> bool:
    """Whether the fused form supports this case: few pairs of child and parent, on a CPU in float32."""
    few = votes.shape[2] * votes.shape[3] <= MOST_PAIRS
    return few and fused_is_chosen() and runs_compiled(votes) and runs_compiled(kernel)


def fused_attention(votes: Tensor, kernel: Tensor, temperature: float, plain: Attend) -> tuple[Tensor, Tensor]:
    """Poses (B, P, J, D) and shares (B, P, I, J), which have no gradient, of votes (B, P, I, J, D).

    ``plain`` is the plain definition, used for second derivatives.
    """
    pose, shares = _FusedAttention.apply(votes, kernel, temperature, plain)  # type: ignore[no-untyped-call]
    return pose, shares


class _FusedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, votes: Tensor, kernel: Tensor, temperature: float, plain: Attend) -> tuple[Tensor, Tensor]:
        from torchcaps.kernels.attention_loops import attend

        batch, positions, children, parents, size = votes.shape
        rows = votes.reshape(batch * positions, children * parents * size)  # (R, I*J*D), a view after a convolution
        logits = rows @ _on_diagonal(kernel, children, parents, size)  # (R, J*I)
        shares = logits.view(len(rows), parents, children)  # filled by the loop
        pose = votes.new_empty(len(rows), parents * size)
        given = rows.numpy(), shares.numpy(), pose.numpy(), np.float32(1 / temperature)
        on_threads(lambda first, last: attend(*given, first, last, size), len(rows))
        ctx.save_for_backward(votes, kernel, shares)
        ctx.settings = temperature, plain
        couplings = shares.view(batch, positions, parents, children).transpose(2, 3)
        ctx.mark_non_differentiable(couplings)
        return pose.view(batch, positions, parents, size), couplings

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        from torchcaps.kernels.attention_loops import logit_gradients

        votes, kernel, shares = ctx.saved_tensors
        temperature, plain = ctx.settings
        if torch.is_grad_enabled():  # create_graph=True
            inputs = [each for each in (votes, kernel) if each.requires_grad]
            found = iter(torch.autograd.grad(plain(votes, kernel)[0], inputs, gradient, create_graph=True))
            return *(next(found) if each.requires_grad else None for each in (votes, kernel)), None, None
        children, parents, size = votes.shape[2:]
        rows = votes.reshape(-1, children * parents * size)
        slopes = gradient.reshape(len(rows), parents * size).contiguous()
        whole, dvotes = torch.empty_like(shares), torch.empty_like(rows)
        given = rows.numpy(), shares.numpy(), slopes.numpy(), whole.numpy(), dvotes.numpy(), np.float32(1 / temperature)
        on_threads(lambda first, last: logit_gradients(*given, first, last, size), len(rows))
        dlogits = whole.flatten(1)  # (R, J*I)
        dvotes.addmm_(dlogits, _on_diagonal(kernel, children, parents, size).T)
        dwhole = (rows.T @ dlogits).view(children, parents, size, parents, children)
        dkernel = dwhole.diagonal(dim1=1, dim2=3).permute(3, 0, 1, 2)  # (J, I, D, I)
        return dvotes.view_as(votes), dkernel.reshape(kernel.shape), None, None


def _on_diagonal(kernel: Tensor, children: int, parents: int, size: int) -> Tensor:
    """The kernels (J, I*D, I) as one matrix (I*J*D, J*I) that is zero between different parents."""
    whole = kernel.new_zeros(children, parents, size, parents, children)
    own = kernel.view(parents, children, size, children).permute(1, 2, 3, 0)  # (I, D, I, J)
    whole.diagonal(dim1=1, dim2=3).copy_(own)
    return whole.view(children * parents * size, parents * children)
