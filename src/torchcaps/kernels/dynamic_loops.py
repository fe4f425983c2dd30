"""Passes of fused dynamic routing over the votes, as loops compiled by numba.

The innermost dimension is the batch, in tiles of 16 images, so that every loop vectorizes without sums across a vector:
agreements, softmax and weighted sums treat 16 images alike. Votes are recomputed from children and weights in every
pass and stay in the cache. Arrays of a tile are flat: poses and sums (J*D*16), logits and shares of a child (J*16).
Children are (tiles, I, K*16), weights (I, K*J*D), or (1, K*J*D) if all children share them; K is a multiple of 8.
Every loop starts at zero: numba checks indices that might be negative, and such loops do not vectorize.
"""

from __future__ import annotations

import numpy as np

from torchcaps.kernels.numba_support import (
    C2,
    C3,
    C4,
    C5,
    C6,
    HALF,
    LN2_HIGH,
    LN2_LOW,
    LOG2_E,
    LOWEST,
    ONE,
    ZERO,
    compiled,
    inner,
)


@inner
def vote(votes, child, weight, width):
    """Compute the votes (J*D*16) of a child: the product of its weight (K*J*D) with its pose (K*16)."""
    for block in range(child.shape[0] // 128):  # eight rows of the weight
        rows, own = weight[8 * block * width :], child[128 * block :]
        w0, w1, w2, w3 = rows, rows[width:], rows[2 * width :], rows[3 * width :]
        w4, w5, w6, w7 = rows[4 * width :], rows[5 * width :], rows[6 * width :], rows[7 * width :]
        if block == 0:
            for n in range(width):
                a0, a1, a2, a3, a4, a5, a6, a7 = w0[n], w1[n], w2[n], w3[n], w4[n], w5[n], w6[n], w7[n]
                for c in range(16):
                    low = a0 * own[c] + a1 * own[16 + c] + a2 * own[32 + c] + a3 * own[48 + c]
                    high = a4 * own[64 + c] + a5 * own[80 + c] + a6 * own[96 + c] + a7 * own[112 + c]
                    votes[n * 16 + c] = low + high
        else:
            for n in range(width):
                a0, a1, a2, a3, a4, a5, a6, a7 = w0[n], w1[n], w2[n], w3[n], w4[n], w5[n], w6[n], w7[n]
                for c in range(16):
                    low = a0 * own[c] + a1 * own[16 + c] + a2 * own[32 + c] + a3 * own[48 + c]
                    high = a4 * own[64 + c] + a5 * own[80 + c] + a6 * own[96 + c] + a7 * own[112 + c]
                    votes[n * 16 + c] += low + high


@inner
def agree(found, votes, poses, types, size):
    """Add the scalar products (J*16) of the votes with their parents' poses."""
    for j in range(types):
        total, vote, pose = found[j * 16 :], votes[j * size * 16 :], poses[j * size * 16 :]
        if size == 16:  # the size in the papers
            for c in range(16):
                a = vote[c] * pose[c] + vote[16 + c] * pose[16 + c] + vote[32 + c] * pose[32 + c]
                b = vote[48 + c] * pose[48 + c] + vote[64 + c] * pose[64 + c] + vote[80 + c] * pose[80 + c]
                a += vote[96 + c] * pose[96 + c] + vote[112 + c] * pose[112 + c] + vote[128 + c] * pose[128 + c]
                b += vote[144 + c] * pose[144 + c] + vote[160 + c] * pose[160 + c] + vote[176 + c] * pose[176 + c]
                a += vote[192 + c] * pose[192 + c] + vote[208 + c] * pose[208 + c]
                b += vote[224 + c] * pose[224 + c] + vote[240 + c] * pose[240 + c]
                total[c] += a + b
        else:
            for d in range(size):
                for c in range(16):
                    total[c] += vote[d * 16 + c] * pose[d * 16 + c]


@inner
def add_weighted(totals, weights, votes, types, size):
    """Add every vote, weighted, to its parent's sum."""
    for j in range(types):
        weight, total, vote = weights[j * 16 :], totals[j * size * 16 :], votes[j * size * 16 :]
        if size == 16:
            for c in range(16):
                w = weight[c]
                total[c] += w * vote[c]
                total[16 + c] += w * vote[16 + c]
                total[32 + c] += w * vote[32 + c]
                total[48 + c] += w * vote[48 + c]
                total[64 + c] += w * vote[64 + c]
                total[80 + c] += w * vote[80 + c]
                total[96 + c] += w * vote[96 + c]
                total[112 + c] += w * vote[112 + c]
                total[128 + c] += w * vote[128 + c]
                total[144 + c] += w * vote[144 + c]
                total[160 + c] += w * vote[160 + c]
                total[176 + c] += w * vote[176 + c]
                total[192 + c] += w * vote[192 + c]
                total[208 + c] += w * vote[208 + c]
                total[224 + c] += w * vote[224 + c]
                total[240 + c] += w * vote[240 + c]
        else:
            for d in range(size):
                own, given = total[d * 16 :], vote[d * 16 :]
                for c in range(16):
                    own[c] += weight[c] * given[c]


@inner
def softmax_over_types(share, logit, powers, scales, peak, types):
    """Softmax over the types of each image, with all exponentials in one long loop."""
    for c in range(16):
        peak[c] = logit[c]
    for j in range(types):
        own = logit[j * 16 :]
        for c in range(16):
            peak[c] = max(peak[c], own[c])
    for j in range(types):
        own, found = logit[j * 16 :], share[j * 16 :]
        for c in range(16):
            found[c] = own[c] - peak[c]
    for n in range(types * 16):
        x = max(share[n], LOWEST)
        power = np.floor(x * LOG2_E + HALF)
        powers[n] = (np.int32(power) + np.int32(127)) << np.int32(23)
        f = x - power * LN2_HIGH - power * LN2_LOW
        share[n] = ONE + f * (ONE + f * (C2 + f * (C3 + f * (C4 + f * (C5 + f * C6)))))
    for n in range(types * 16):
        share[n] *= scales[n]
    peak[:] = ZERO  # now the sum
    for j in range(types):
        found = share[j * 16 :]
        for c in range(16):
            peak[c] += found[c]
    for c in range(16):
        peak[c] = ONE / peak[c]
    for j in range(types):
        found = share[j * 16 :]
        for c in range(16):
            found[c] *= peak[c]


@compiled
def dynamic_iteration(children, weight, poses, logits, shares, totals, first, last, types, size):
    """One iteration: add the agreement with ``poses`` to the logits, take the softmax, and sum the weighted votes.

    For the tiles ``first`` to ``last``: poses and totals are (tiles, J*D*16), logits and shares (tiles, I, J*16).
    """
    width = types * size
    votes = np.empty(width * 16, np.float32)
    powers, peak = np.empty(types * 16, np.int32), np.empty(16, np.float32)
    scales = powers.view(np.float32)
    for step in range(last - first):
        tile = first + step
        pose, total = poses[tile], totals[tile]
        total[:] = ZERO
        for i in range(children.shape[1]):
            vote(votes, children[tile, i], weight[i if weight.shape[0] > 1 else 0], width)
            logit, share = logits[tile, i], shares[tile, i]
            agree(logit, votes, pose, types, size)
            softmax_over_types(share, logit, powers, scales, peak, types)
            add_weighted(total, share, votes, types, size)


@compiled
def dynamic_backward(children, weight, dsums, shares, dlogits, dposes, first, last, types, size):
    """One iteration backward: from the gradient of its sums to that of its logits and of the poses before it."""
    width = types * size
    votes = np.empty(width * 16, np.float32)
    dshare, mean = np.empty(types * 16, np.float32), np.empty(16, np.float32)
    for step in range(last - first):
        tile = first + step
        dsum, dpose = dsums[tile], dposes[tile]
        dpose[:] = ZERO
        for i in range(children.shape[1]):
            vote(votes, children[tile, i], weight[i if weight.shape[0] > 1 else 0], width)
            share, dlogit = shares[tile, i], dlogits[tile, i]
            dshare[:] = ZERO
            agree(dshare, votes, dsum, types, size)
            mean[:] = ZERO
            for j in range(types):
                own, slope = share[j * 16 :], dshare[j * 16 :]
                for c in range(16):
                    mean[c] += own[c] * slope[c]
            for j in range(types):
                own, slope, found = share[j * 16 :], dshare[j * 16 :], dlogit[j * 16 :]
                for c in range(16):
                    found[c] += own[c] * (slope[c] - mean[c])
            add_weighted(dpose, dlogit, votes, types, size)


@compiled
def dynamic_vote_gradients(shares, dsums, dlogits, poses, equal, dvotes, tile, begin, first, last, types, size):
    """Gradients of votes in one tile: of the children ``begin + first`` to ``begin + last``, (children, J*D*16).

    The gradient of a vote is a sum of (number per vote) times (vector per parent) over all iterations: ``shares`` and
    ``dlogits`` (T-1, tiles, I, J*16), ``dsums`` (T, tiles, J*D*16) and ``poses`` (T-1, tiles, J*D*16) are those of
    every iteration; in the first one all shares are ``equal``.
    """
    start = dsums[0, tile]
    for step in range(last - first):
        i = first + step
        total = dvotes[i]
        for n in range(total.shape[0]):
            total[n] = equal * start[n]
        for t in range(shares.shape[0]):
            add_weighted(total, shares[t, tile, begin + i], dsums[t + 1, tile], types, size)
            add_weighted(total, dlogits[t, tile, begin + i], poses[t, tile], types, size)
