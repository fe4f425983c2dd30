"""Fused dynamic routing after a dense or shared transform, with a hand-written gradient.

Autograd would store the votes, and a gradient of their size for each of their 2T - 1 uses. Here an iteration is one
pass forward and one backward that recomputes the votes from children and weights; vote gradients are computed for a
few children at a time. The plain definition is ``routing.dynamic.route_plainly``; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from torchcaps.kernels.dispatch import fused_is_chosen, kernel_choice, on_threads, runs_compiled, runs_on_triton
from torchcaps.kernels.vote_factors import VoteFactors

Nonlinearity = Callable[[Tensor], Tensor]
Plain = Callable[[Tensor, Tensor], Tensor]
TILE = 16  # images in the innermost dimension of the loops
ROWS = 8  # of a weight that the loops multiply at once: the elements of a child's pose are filled up with zeros
FEWEST_IMAGES = 5
CHUNK = 2**18  # elements of the vote gradients that are computed at once


def fused_dynamic_applies(factors: VoteFactors) -> bool:
    """Whether a fused kernel supports this case and is faster than plain PyTorch.

    It needs vectors, and a dense transform on a CPU in float32 or on a GPU, or on a CPU also a shared transform. With a
    few images on a CPU, most lanes of the loops would be empty.
    """
    slots = factors.child_index.shape[1]
    usual = len(factors.child_index) == 1 and len(factors.weight) in (1, slots) and not len(factors.offset)
    vectors = factors.poses.shape[2] == 1
    if not (usual and vectors):
        return False
    if runs_on_triton(factors.poses, factors.weight):
        from torchcaps.kernels.triton_dynamic import dynamic_tile_fits

        _, inner, size, types = factors.weight.shape
        return len(factors.weight) == slots and dynamic_tile_fits(inner, types, size)
    if not (fused_is_chosen() and runs_compiled(factors.poses) and runs_compiled(factors.weight)):
        return False  # before the batch size is read: torch.export would fix it
    return len(factors.poses) >= FEWEST_IMAGES or kernel_choice() == "fast"


def fused_dynamic_routing(
    children: Tensor, weight: Tensor, iterations: int, nonlinearity: Nonlinearity, plain: Plain
) -> Tensor:
    """Poses before the nonlinearity. Shapes: children (B, I, K), weight (I, K, J, D) or (1, ...), result (B, J, D).

    ``plain`` is the plain definition, used for second derivatives.
    """
    arguments = (children, weight, iterations, nonlinearity, plain)
    if runs_on_triton(children):
        from torchcaps.kernels.triton_dynamic import triton_dynamic

        return triton_dynamic(*arguments)
    missing = -children.shape[2] % ROWS
    padded = F.pad(children, (0, missing)), F.pad(weight, (0, 0, 0, 0, 0, missing))
    pose: Tensor = _FusedDynamic.apply(*padded, iterations, nonlinearity, plain)  # type: ignore[no-untyped-call]
    return pose


class _FusedDynamic(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, children: Tensor, weight: Tensor, iterations: int, nonlinearity: Nonlinearity, plain: Plain
    ) -> Tensor:
        from torchcaps.kernels.dynamic_loops import dynamic_iteration

        (batch, count, inner), (types, size) = children.shape, weight.shape[2:]
        tiles = -(-batch // TILE)
        sums = [_equal_sums(children, weight) / types]
        by_child = torch.from_numpy(_to_tiles(children)).view(tiles, count, inner, TILE)
        lines = weight.flatten(2).contiguous()  # (I, K, J*D)
        factors = by_child.flatten(2).numpy(), lines.flatten(1).numpy()
        logits = np.zeros((tiles, count, types * TILE), np.float32)
        shares = np.empty((iterations - 1, *logits.shape), np.float32)
        poses = np.empty((iterations - 1, tiles, types * size * TILE), np.float32)
        for step in range(iterations - 1):
            poses[step] = _to_tiles(nonlinearity(sums[-1]))
            total = np.empty((tiles, types * size * TILE), np.float32)

            def some_tiles(first: int, last: int, step: int = step, total: Any = total) -> None:
                dynamic_iteration(*factors, poses[step], logits, shares[step], total, first, last, types, size)

            on_threads(some_tiles, tiles)
            sums.append(_from_tiles(total, batch, types, size))
        ctx.save_for_backward(children, weight)
        ctx.kept, ctx.again = (by_child, lines, shares, poses, sums[:-1]), (nonlinearity, plain)
        return sums[-1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        children, weight = ctx.saved_tensors
        nonlinearity, plain = ctx.again
        if torch.is_grad_enabled():  # create_graph=True
            return plain_dynamic_gradient(children, weight, plain, gradient)
        dsums, dlogits = _through_iterations(ctx.kept, gradient, nonlinearity)
        dchildren, dweight = _factor_gradients(ctx.kept, dsums, dlogits)
        by_image = dchildren.permute(0, 3, 1, 2).flatten(0, 1)[: len(children)]
        return by_image, dweight.view_as(weight), None, None, None


def _equal_sums(children: Tensor, weight: Tensor) -> Tensor:
    """Sums (B, J, D) of the votes of all children: one matrix product."""
    shared = len(weight) < children.shape[1]
    rows = children.sum(1) if shared else children.flatten(1)
    sums: Tensor = rows @ weight.flatten(0, 1).flatten(1)
    return sums.view(len(sums), *weight.shape[2:])


def _to_tiles(poses: Tensor) -> Any:
    """Poses (B, J, D) with the batch innermost: (tiles, J*D*16), zero after the last image."""
    padded = F.pad(poses.detach().flatten(1), (0, 0, 0, -len(poses) % TILE))
    tiles = padded.view(len(padded) // TILE, TILE, padded.shape[1]).transpose(1, 2).contiguous()
    return tiles.flatten(1).numpy()


def _from_tiles(tiles: Any, batch: int, types: int, size: int) -> Tensor:
    images = torch.from_numpy(tiles).view(len(tiles), types * size, TILE).transpose(1, 2).flatten(0, 1)[:batch]
    return images.reshape(batch, types, size)


def plain_dynamic_gradient(
    children: Tensor, weight: Tensor, plain: Plain, gradient: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients that can be differentiated again, by the plain definition."""
    inputs = [each for each in (children, weight) if each.requires_grad]
    found = iter(torch.autograd.grad(plain(children, weight), inputs, gradient, create_graph=True))
    return *(next(found) if each.requires_grad else None for each in (children, weight)), None, None, None


def _through_iterations(kept: Any, gradient: Tensor, nonlinearity: Nonlinearity) -> tuple[Any, Any]:
    """Gradients of the sums (T, tiles, J*D*16) and of the logits (T-1, tiles, I, J*16) of every iteration."""
    from torchcaps.kernels.dynamic_loops import dynamic_backward

    by_child, lines, shares, _, sums = kept
    factors = by_child.flatten(2).numpy(), lines.flatten(1).numpy()
    batch, types, size = gradient.shape
    tiles = shares.shape[1]
    dsums = np.empty((len(shares) + 1, tiles, types * size * TILE), np.float32)
    dlogits = np.zeros_like(shares)
    for step in reversed(range(len(shares))):
        dsums[step + 1] = _to_tiles(gradient)
        dposes = np.empty((tiles, types * size * TILE), np.float32)
        if step + 1 < len(shares):
            dlogits[step] = dlogits[step + 1]  # a logit also enters all later iterations

        def some_tiles(first: int, last: int, step: int = step, dposes: Any = dposes) -> None:
            dynamic_backward(*factors, dsums[step + 1], shares[step], dlogits[step], dposes, first, last, types, size)

        on_threads(some_tiles, tiles)
        with torch.enable_grad():
            leaf = sums[step].detach().requires_grad_()
            slope = _from_tiles(dposes, batch, types, size)
            (gradient,) = torch.autograd.grad(nonlinearity(leaf), leaf, slope)
    dsums[0] = _to_tiles(gradient)
    return dsums, dlogits


def _factor_gradients(kept: Any, dsums: Any, dlogits: Any) -> tuple[Tensor, Tensor]:
    """Gradients of the children (tiles, I, K, 16) and of the weights, by way of those of a few children's votes."""
    from torchcaps.kernels.dynamic_loops import dynamic_vote_gradients

    by_child, lines, shares, poses, _ = kept
    (tiles, count, _, _), width = by_child.shape, lines.shape[2]
    types, shared = shares.shape[3] // TILE, len(lines) < count
    dchildren, dweight = torch.empty_like(by_child), torch.zeros_like(lines)
    step = max(1, CHUNK // (TILE * width))
    given = shares, dsums, dlogits, poses, np.float32(1 / types)
    for tile in range(tiles):
        for begin in range(0, count, step):
            chunk = slice(begin, min(begin + step, count))
            dvotes = torch.empty(chunk.stop - begin, width, TILE)
            which = dvotes.flatten(1).numpy(), tile, begin

            def some_children(first: int, last: int, which: Any = which) -> None:
                dynamic_vote_gradients(*given, *which, first, last, types, width // types)

            on_threads(some_children, len(dvotes))
            own = lines.expand(len(dvotes), -1, -1) if shared else lines[chunk]
            torch.bmm(own, dvotes, out=dchildren[tile, chunk])
            poses_of_chunk, across = by_child[tile, chunk], dvotes.transpose(1, 2)
            if shared:
                dweight += torch.bmm(poses_of_chunk, across).sum(0)
            else:
                dweight[chunk].baddbmm_(poses_of_chunk, across)
    return dchildren, dweight
