"""Triton kernels of fused dynamic routing: passes over the votes, which are computed in registers and never stored.

Shapes: B images, I children of size K, J parent types, D pose size. A pass handles a tile of images, (M, J, D), and
loops over a chunk of children. All images of a tile use the same W, which is read once. Only
:func:`dynamic_factor_gradients` has tiles of M children and loops over images, because the gradient of W is a sum over
images. J, D and K are padded to powers of two.
"""

from __future__ import annotations

import triton
import triton.language as tl

NUMBERS = ["batch", "span"]  # differ between batches, which should not compile the kernels again


@triton.jit
def dynamic_lanes(types: tl.constexpr, size: tl.constexpr, j_pad: tl.constexpr, d_pad: tl.constexpr):
    """Offsets of the padded elements of a vote (J, D), which of them exist, and which types do (1, J)."""
    j, d = tl.arange(0, j_pad), tl.arange(0, d_pad)
    return j[:, None] * size + d[None, :], (j < types)[:, None] & (d < size)[None, :], (j < types)[None, :]


@triton.jit
def couple(votes, pose, real):
    """Couplings (M, J): softmax over the types of the agreement of votes and poses (M, J, D)."""
    logit = tl.where(real, tl.sum(votes * pose, axis=2), -float("inf"))
    share = tl.exp(logit - tl.max(logit, axis=1)[:, None])
    return share / tl.sum(share, axis=1)[:, None]


@triton.jit
def child_votes(
    children, weight, i, b, lane, inside, count, types: tl.constexpr, size: tl.constexpr, inner: tl.constexpr
):
    """Votes (M, J, D) of child i in the images b (M)."""
    for k in tl.static_range(inner):
        number = tl.load(children + (b * count + i) * inner + k)
        at = weight + (i * inner + k) * (types * size) + lane
        part = number[:, None, None] * tl.load(at, mask=inside, other=0.0)[None, :, :]
        if k == 0:
            votes = part
        else:
            votes += part
    return votes


@triton.jit(do_not_specialize=NUMBERS)
def dynamic_pass(
    children, weight, poses, sums, batch, count, span, types: tl.constexpr, size: tl.constexpr, inner: tl.constexpr,
    tile: tl.constexpr, j_pad: tl.constexpr, d_pad: tl.constexpr,
):  # fmt: skip
    """Sums of the votes weighted by their couplings, for a tile of images and each chunk of children.

    Shapes: ``children`` (B, I, K), ``weight`` (I, K, J, D), ``poses`` (B, J, D) the sum of all earlier poses, ``sums``
    (chunks, B, J, D).
    """
    b = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    live = b < batch
    b = tl.minimum(b, batch - 1)
    lane, inside, real = dynamic_lanes(types, size, j_pad, d_pad)
    at = b[:, None, None] * (types * size) + lane[None, :, :]
    pose = tl.load(poses + at, mask=inside[None, :, :], other=0.0)
    total = tl.zeros((tile, j_pad, d_pad), tl.float32)
    chunk = tl.program_id(1)
    for i in range(chunk * span, tl.minimum((chunk + 1) * span, count)):
        votes = child_votes(children, weight, i, b, lane, inside, count, types, size, inner)
        total += couple(votes, pose, real)[:, :, None] * votes
    to = chunk.to(tl.int64) * batch * (types * size) + at
    tl.store(sums + to, total, mask=live[:, None, None] & inside[None, :, :])


@triton.jit(do_not_specialize=NUMBERS)
def dynamic_pass_backward(
    children, weight, poses, dsums, dposes, batch, count, span, types: tl.constexpr, size: tl.constexpr,
    inner: tl.constexpr, tile: tl.constexpr, j_pad: tl.constexpr, d_pad: tl.constexpr,
):  # fmt: skip
    """Gradient of ``poses`` (chunks, B, J, D) from that of the sums (B, J, D) of one iteration."""
    b = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    live = b < batch
    b = tl.minimum(b, batch - 1)
    lane, inside, real = dynamic_lanes(types, size, j_pad, d_pad)
    at = b[:, None, None] * (types * size) + lane[None, :, :]
    pose = tl.load(poses + at, mask=inside[None, :, :], other=0.0)
    dsum = tl.load(dsums + at, mask=inside[None, :, :], other=0.0)
    total = tl.zeros((tile, j_pad, d_pad), tl.float32)
    chunk = tl.program_id(1)
    for i in range(chunk * span, tl.minimum((chunk + 1) * span, count)):
        votes = child_votes(children, weight, i, b, lane, inside, count, types, size, inner)
        share, dshare = couple(votes, pose, real), tl.sum(votes * dsum, axis=2)
        dlogit = share * (dshare - tl.sum(share * dshare, axis=1)[:, None])
        total += dlogit[:, :, None] * votes
    to = chunk.to(tl.int64) * batch * (types * size) + at
    tl.store(dposes + to, total, mask=live[:, None, None] & inside[None, :, :])


@triton.jit(do_not_specialize=NUMBERS)
def dynamic_factor_gradients(
    children, weight, iterations, dchildren, dweights, steps, batch, count, span, types: tl.constexpr,
    size: tl.constexpr, inner: tl.constexpr, tile: tl.constexpr, k_pad: tl.constexpr, j_pad: tl.constexpr,
    d_pad: tl.constexpr,
):  # fmt: skip
    """Gradients of children (B, I, K) and, for each chunk of images, of weights (chunks, I, K, J, D).

    ``iterations`` (T, B, 2, J, D) has the sums of earlier poses and the gradients of the sums of all T = ``steps``
    iterations. A tile has M children, where M divides I, and loops over images.
    """
    i = tl.program_id(0) * tile + tl.arange(0, tile)
    lane, inside, real = dynamic_lanes(types, size, j_pad, d_pad)
    k = tl.arange(0, k_pad)
    in_weight = (i[:, None] * inner + k[None, :])[:, :, None, None] * (types * size) + lane[None, None, :, :]
    weight_mask = (k < inner)[None, :, None, None] & inside[None, None, :, :]
    dweight = tl.zeros((tile, k_pad, j_pad, d_pad), tl.float32)
    chunk = tl.program_id(1)
    for image in range(chunk * span, tl.minimum((chunk + 1) * span, batch)):
        row = tl.cast(image, tl.int64)
        numbers_at = (row * count + i)[:, None] * inner + k[None, :]
        numbers = tl.load(children + numbers_at, mask=(k < inner)[None, :], other=0.0)
        matrix = tl.load(weight + in_weight, mask=weight_mask, other=0.0)
        votes = tl.sum(numbers[:, :, None, None] * matrix, axis=1)
        dvotes = tl.zeros((tile, j_pad, d_pad), tl.float32)
        for t in range(steps):
            at = ((row + tl.cast(t, tl.int64) * batch) * (2 * types * size) + lane)[None, :, :]
            pose = tl.load(iterations + at, mask=inside[None, :, :], other=0.0)
            dsum = tl.load(iterations + at + types * size, mask=inside[None, :, :], other=0.0)
            share, dshare = couple(votes, pose, real), tl.sum(votes * dsum, axis=2)
            dlogit = share * (dshare - tl.sum(share * dshare, axis=1)[:, None])
            dvotes += share[:, :, None] * dsum + dlogit[:, :, None] * pose
        dnumbers = tl.sum(tl.sum(dvotes[:, None, :, :] * matrix, axis=3), axis=2)
        tl.store(dchildren + numbers_at, dnumbers, mask=(k < inner)[None, :])
        dweight += numbers[:, :, None, None] * dvotes[:, None, :, :]
    to = chunk.to(tl.int64) * count * (inner * types * size) + in_weight
    tl.store(dweights + to, dweight, mask=weight_mask)
