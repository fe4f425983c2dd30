"""Fused dynamic routing after a dense transform, with a hand-written gradient.

Autograd would store a gradient of the size of the votes for each of the 2T - 1 uses of the votes and add them up. Here
an iteration is one pass over the votes forward and one backward, and vote gradients are accumulated directly into those
of pose and W. The plain definition is ``routing.dynamic.route_plainly``; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchcaps.functional import VoteFactors
from torchcaps.kernels.dispatch import fused_is_chosen, on_threads, runs_compiled, runs_on_triton

Nonlinearity = Callable[[Tensor], Tensor]
Plain = Callable[[Tensor, Tensor], Tensor]


def fused_dynamic_applies(factors: VoteFactors) -> bool:
    """Whether a fused kernel supports this case: a dense transform of vectors, on a CPU in float32 or on a GPU."""
    slots = factors.child_index.shape[1]
    dense = len(factors.child_index) == 1 and len(factors.weight) == slots and not len(factors.offset)
    vectors = factors.poses.shape[2] == 1
    if not (dense and vectors):
        return False
    if runs_on_triton(factors.poses, factors.weight):
        from torchcaps.kernels.triton_dynamic import dynamic_tile_fits

        _, inner, size, types = factors.weight.shape
        return dynamic_tile_fits(inner, types, size)
    return fused_is_chosen() and runs_compiled(factors.poses) and runs_compiled(factors.weight)


def fused_dynamic_routing(
    children: Tensor, weight: Tensor, iterations: int, nonlinearity: Nonlinearity, plain: Plain
) -> Tensor:
    """Poses before the nonlinearity. Shapes: children (B, I, K), weight (I, K, J, D), result (B, J, D).

    ``plain`` is the plain definition, used for second derivatives.
    """
    arguments = (children, weight, iterations, nonlinearity, plain)
    if runs_on_triton(children):
        from torchcaps.kernels.triton_dynamic import triton_dynamic

        return triton_dynamic(*arguments)
    pose: Tensor = _FusedDynamic.apply(*arguments)  # type: ignore[no-untyped-call]
    return pose


class _FusedDynamic(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, children: Tensor, weight: Tensor, iterations: int, nonlinearity: Nonlinearity, plain: Plain
    ) -> Tensor:
        from torchcaps.kernels.dynamic_loops import dynamic_iteration

        batch, count, types, size = *children.shape[:2], *weight.shape[2:]
        votes = torch.bmm(children.transpose(0, 1), weight.flatten(2)).flatten(1).numpy()  # (I, B*J*D)
        sums = [torch.from_numpy(votes).sum(0).view(batch, types, size) / types]  # equal couplings
        logits = np.zeros((count, batch * types), np.float32)
        shares = np.empty((iterations - 1, count, batch * types), np.float32)
        poses = np.empty((iterations - 1, batch * types * size), np.float32)
        for step in range(iterations - 1):
            poses[step] = nonlinearity(sums[-1]).flatten().numpy()
            total = np.empty(batch * types * size, np.float32)

            def some_images(first: int, last: int, step: int = step, total: Any = total) -> None:
                images = first * types, last * types
                dynamic_iteration(votes, poses[step], logits, shares[step], total, *images, types, size)

            on_threads(some_images, batch)
            sums.append(torch.from_numpy(total).view(batch, types, size))
        ctx.save_for_backward(children, weight)
        ctx.kept, ctx.again = (votes, shares, poses, sums[:-1]), (nonlinearity, plain)
        return sums[-1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        children, weight = ctx.saved_tensors
        nonlinearity, plain = ctx.again
        if torch.is_grad_enabled():  # create_graph=True
            return plain_dynamic_gradient(children, weight, plain, gradient)
        dsums, dlogits = _through_iterations(ctx.kept, gradient, nonlinearity)
        return *_factor_gradients(ctx.kept, dsums, dlogits, children, weight), None, None, None


def plain_dynamic_gradient(
    children: Tensor, weight: Tensor, plain: Plain, gradient: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients that can be differentiated again, by the plain definition."""
    inputs = [each for each in (children, weight) if each.requires_grad]
    found = iter(torch.autograd.grad(plain(children, weight), inputs, gradient, create_graph=True))
    return *(next(found) if each.requires_grad else None for each in (children, weight)), None, None, None


def _through_iterations(kept: Any, gradient: Tensor, nonlinearity: Nonlinearity) -> tuple[Any, Any]:
    """Gradients of the sums (T, B*J*D) and of the logits (T-1, I, B*J) of every iteration."""
    from torchcaps.kernels.dynamic_loops import dynamic_backward

    votes, shares, _, sums = kept
    batch, types, size = gradient.shape
    dsums = np.empty((len(shares) + 1, batch * types * size), np.float32)
    dlogits = np.zeros_like(shares)
    for step in reversed(range(len(shares))):
        dsums[step + 1] = gradient.flatten().numpy()
        dposes = np.empty(batch * types * size, np.float32)
        if step + 1 < len(shares):
            dlogits[step] = dlogits[step + 1]  # a logit also enters all later iterations

        def some_images(first: int, last: int, step: int = step, dposes: Any = dposes) -> None:
            images = first * types, last * types
            dynamic_backward(votes, dsums[step + 1], shares[step], dlogits[step], dposes, *images, types, size)

        on_threads(some_images, batch)
        with torch.enable_grad():
            leaf = sums[step].detach().requires_grad_()
            slope = torch.from_numpy(dposes).view(batch, types, size)
            (gradient,) = torch.autograd.grad(nonlinearity(leaf), leaf, slope)
    dsums[0] = gradient.flatten().numpy()
    return dsums, dlogits


def _factor_gradients(kept: Any, dsums: Any, dlogits: Any, children: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    from torchcaps.kernels.dynamic_loops import factor_gradients

    _, shares, poses, _ = kept
    batch, types, size = len(children), *weight.shape[2:]
    by_child = children.detach().transpose(0, 1).contiguous().numpy()  # (I, B, K)
    lines = weight.detach().flatten(2).contiguous().numpy()  # (I, K, J*D)
    dchildren = np.empty_like(by_child)

    def some_images(first: int, last: int) -> Any:
        dlines = np.zeros_like(lines)
        numbers = np.float32(1 / types), by_child, lines, dchildren, dlines
        factor_gradients(shares, dsums, dlogits, poses, *numbers, first * types, last * types, types, size)
        return dlines

    dweight = torch.from_numpy(sum(on_threads(some_images, batch)))
    return torch.from_numpy(dchildren).transpose(0, 1), dweight.view_as(weight)
