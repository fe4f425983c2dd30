"""Passes of fused dynamic routing over the votes, as loops compiled by numba.

A pass goes child by child through all images, so that votes stream through memory once, in the order in which a dense
transform writes them, and each vote is fully processed while it is in cache. Arrays are flat in images, types and pose:
votes are (I, B*J*D), poses and their sums (B*J*D), logits and shares (I, B*J). Each thread gets slices for its images.
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
def agree(found, row, poses, size):
    """Add the scalar product of every vote with its parent."""
    for k in range(found.shape[0]):
        total = ZERO
        if size == 16:  # the size in the papers, unrolled by the compiler
            for d in range(16):
                total += row[k * 16 + d] * poses[k * 16 + d]
        else:
            for d in range(size):
                total += row[k * size + d] * poses[k * size + d]
        found[k] += total


@inner
def add_weighted(totals, weights, row, wide, size):
    """Add every vote, weighted, to its parent's sum. ``wide`` is a buffer with one weight per element."""
    repeat_weights(wide, weights, size)
    for n in range(row.shape[0]):
        totals[n] += wide[n] * row[n]


@inner
def repeat_weights(wide, weights, size):
    """Repeat the weight of each vote for all its elements."""
    for k in range(weights.shape[0]):
        weight = weights[k]
        if size == 16:
            for d in range(16):
                wide[k * 16 + d] = weight
        else:
            for d in range(size):
                wide[k * size + d] = weight


@inner
def softmax_over_types(share, logit, types, powers, scales):
    """Softmax over the types of each image for one child, with all exponentials in one long loop."""
    count = share.shape[0]
    for start in range(0, count, types):
        peak = logit[start]
        for j in range(types):
            peak = max(peak, logit[start + j])
        for j in range(types):
            share[start + j] = logit[start + j] - peak
    for k in range(count):
        x = max(share[k], LOWEST)
        power = np.floor(x * LOG2_E + HALF)
        powers[k] = (np.int32(power) + np.int32(127)) << np.int32(23)
        f = x - power * LN2_HIGH - power * LN2_LOW
        share[k] = ONE + f * (ONE + f * (C2 + f * (C3 + f * (C4 + f * (C5 + f * C6)))))
    for k in range(count):
        share[k] *= scales[k]
    for start in range(0, count, types):
        whole = ZERO
        for j in range(types):
            whole += share[start + j]
        for j in range(types):
            share[start + j] *= ONE / whole


@compiled
def dynamic_iteration(votes, poses, logits, shares, totals, first, last, types, size):
    """One iteration: add the agreement with ``poses`` to the logits, take the softmax, and sum the weighted votes."""
    low, high = first * size, last * size
    wide, powers = np.empty(high - low, np.float32), np.empty(last - first, np.int32)
    scales = powers.view(np.float32)
    own_poses, own_totals = poses[low:high], totals[low:high]
    own_totals[:] = ZERO
    for i in range(votes.shape[0]):
        row, logit, share = votes[i, low:high], logits[i, first:last], shares[i, first:last]
        agree(logit, row, own_poses, size)
        softmax_over_types(share, logit, types, powers, scales)
        add_weighted(own_totals, share, row, wide, size)


@compiled
def dynamic_backward(votes, dsums, shares, dlogits, dposes, first, last, types, size):
    """One iteration backward: from the gradient of its sums to that of its logits and of the poses before it."""
    low, high = first * size, last * size
    wide, dshare = np.empty(high - low, np.float32), np.empty(last - first, np.float32)
    own_dsums, own_dposes = dsums[low:high], dposes[low:high]
    own_dposes[:] = ZERO
    for i in range(votes.shape[0]):
        row, share, dlogit = votes[i, low:high], shares[i, first:last], dlogits[i, first:last]
        dshare[:] = ZERO
        agree(dshare, row, own_dsums, size)
        for start in range(0, last - first, types):
            mean = ZERO
            for j in range(types):
                mean += share[start + j] * dshare[start + j]
            for j in range(types):
                dlogit[start + j] += share[start + j] * (dshare[start + j] - mean)
        add_weighted(own_dposes, dlogit, row, wide, size)


@compiled
def factor_gradients(
    shares, dsums, dlogits, poses, equal, children, weight, dchildren, dweight, first, last, types, size
):
    """Accumulate the gradients of children and weights from those of the votes, child by child.

    The gradient of a vote is a sum of (number per vote) times (vector per parent) over all iterations: ``shares`` and
    ``dlogits`` (T-1, I, B*J), ``dsums`` (T, B*J*D) and ``poses`` (T-1, B*J*D) are those of every iteration; in the
    first one all shares are ``equal``. ``children`` (I, B, K) get ``dchildren``, ``weight`` (I, K, J*D) this thread's
    ``dweight``.
    """
    low, high = first * size, last * size
    lanes, inner = types * size, weight.shape[1]
    wide, row = np.empty(high - low, np.float32), np.empty(high - low, np.float32)
    for i in range(weight.shape[0]):
        begin = dsums[0, low:high]
        for n in range(row.shape[0]):
            row[n] = equal * begin[n]
        for t in range(shares.shape[0]):
            add_weighted(row, shares[t, i, first:last], dsums[t + 1, low:high], wide, size)
            add_weighted(row, dlogits[t, i, first:last], poses[t, low:high], wide, size)
        for b in range((last - first) // types):
            image, own = first // types + b, row[b * lanes : (b + 1) * lanes]
            for k in range(inner):
                found = ZERO
                number, line, dline = children[i, image, k], weight[i, k], dweight[i, k]
                for n in range(lanes):
                    found += own[n] * line[n]
                    dline[n] += number * own[n]
                dchildren[i, image, k] = found
