"""Fused dynamic routing on a GPU after a dense transform: votes are computed in registers, forward and backward.

The logits of iteration t are the agreements with the sum of all earlier poses, b = V . (v_0 + ... + v_{t-1}). An
iteration needs nothing but that sum, so neither votes, logits nor couplings are stored. The plain definition is
``routing.dynamic.route_plainly``; a test compares the two. No sum uses atomics, so the same batch gives bit-identical
results.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from triton import cdiv, next_power_of_2

from torchcaps.kernels import triton_dynamic_kernels as kernels
from torchcaps.kernels.dynamic import Nonlinearity, Plain, plain_dynamic_gradient
from torchcaps.kernels.triton_support import kernels_agree, split_loop

TILE = 2048  # numbers in a tile of votes, if one child has no more
LARGEST_TILE = 16384


def triton_dynamic(
    children: Tensor, weight: Tensor, iterations: int, nonlinearity: Nonlinearity, plain: Plain
) -> Tensor:
    """Poses before the nonlinearity. Shapes: children (B, I, K), weight (I, K, J, D), result (B, J, D)."""

    def fused(children: Tensor, weight: Tensor) -> tuple[Tensor]:
        return (_TritonDynamic.apply(children, weight, iterations, nonlinearity, plain),)  # type: ignore[no-untyped-call]

    with torch.cuda.device_of(children):
        few = (children[:2], weight)
        if children.is_cuda and not kernels_agree("dynamic", fused, lambda *each: (plain(*each),), few):
            return plain(children, weight)
        return fused(children, weight)[0]


def dynamic_tile_config(inner: int, types: int, size: int) -> dict[str, int]:
    """Sizes of a tile of images, (M, J, D), and the number of warps."""
    pads = {"j_pad": next_power_of_2(types), "d_pad": next_power_of_2(size)}
    votes = pads["j_pad"] * pads["d_pad"]
    return pads | {"tile": max(1, TILE // votes), "num_warps": max(8, votes // 512)}


def dynamic_factor_config(count: int, inner: int, types: int, size: int) -> dict[str, int]:
    """Sizes of a tile of children in the last pass, which sums up a gradient of W for each, and its warps."""
    config, inner = dynamic_tile_config(inner, types, size), next_power_of_2(inner)
    each = config["j_pad"] * config["d_pad"] * inner
    tile = math.gcd(count, max(1, 2 * TILE // each))
    return config | {"k_pad": inner, "tile": tile, "num_warps": 8 if each <= 8192 else 16}


def dynamic_tile_fits(inner: int, types: int, size: int) -> bool:
    """Whether the votes of one child, and the gradient of its W, fit into the registers of a program."""
    config = dynamic_factor_config(1, inner, types, size)
    votes = config["j_pad"] * config["d_pad"]
    return votes <= 8192 and votes * config["k_pad"] <= LARGEST_TILE


class _TritonDynamic(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, children: Tensor, weight: Tensor, iterations: int, nonlinearity: Nonlinearity, plain: Plain
    ) -> Tensor:
        factors = children.detach().contiguous(), weight.detach().contiguous()
        shape = (len(children), *weight.shape[2:])
        poses, sums = [children.new_zeros(shape)], []
        for step in range(iterations):
            sums.append(_pass_over_children(kernels.dynamic_pass, *factors, poses[-1]))
            if step < iterations - 1:
                poses.append(poses[-1] + nonlinearity(sums[-1]))
        ctx.save_for_backward(children, weight)
        ctx.kept, ctx.again = (factors, poses, sums[:-1]), (nonlinearity, plain)
        return sums[-1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        nonlinearity, plain = ctx.again
        if torch.is_grad_enabled():  # create_graph=True
            children, weight = ctx.saved_tensors
            return plain_dynamic_gradient(children, weight, plain, gradient)
        factors, poses, sums = ctx.kept
        dsums = [gradient.contiguous()]
        dpose = torch.zeros_like(poses[0])
        for step in reversed(range(1, len(poses))):
            dpose = dpose + _pass_over_children(kernels.dynamic_pass_backward, *factors, poses[step], dsums[0])
            with torch.enable_grad():
                leaf = sums[step - 1].detach().requires_grad_()
                (slope,) = torch.autograd.grad(nonlinearity(leaf), leaf, dpose)
            dsums.insert(0, slope.contiguous())
        stacked = torch.stack((torch.stack(poses), torch.stack(dsums)), 2)
        return *_factor_gradients(factors, stacked), None, None, None


def _pass_over_children(kernel: Any, children: Tensor, weight: Tensor, *parents: Tensor) -> Tensor:
    """One pass of a kernel, summed over chunks of children: (B, J, D)."""
    (batch, count, inner), (types, size) = children.shape, weight.shape[2:]
    config = dynamic_tile_config(inner, types, size)
    tiles = cdiv(batch, config["tile"])
    chunks, span = split_loop(tiles, count)
    sums = children.new_empty(chunks, batch, types, size)
    sizes = {"types": types, "size": size, "inner": inner}
    kernel[tiles, chunks](children, weight, *parents, sums, batch, count, span, **sizes, **config)
    return sums.sum(0)


def _factor_gradients(factors: tuple[Tensor, Tensor], iterations: Tensor) -> tuple[Tensor, Tensor]:
    children, weight = factors
    (batch, count, inner), (types, size) = children.shape, weight.shape[2:]
    config = dynamic_factor_config(count, inner, types, size)
    tiles = count // config["tile"]
    chunks, span = split_loop(tiles, batch)
    dchildren, dweights = torch.empty_like(children), children.new_zeros(chunks, *weight.shape)
    sizes = {"types": types, "size": size, "inner": inner}
    kernels.dynamic_factor_gradients[tiles, chunks](
        children, weight, iterations, dchildren, dweights, len(iterations), batch, count, span, **sizes, **config
    )
    return dchildren, dweights.sum(0)
