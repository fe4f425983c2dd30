"""Forward pass of fused EM routing for one image, and loops that it shares with the backward pass, compiled by numba.

The votes of one parent position at a time are computed in cache, used, and discarded. They are stored as rows of
lanes: row r of the pose matrix has L = q' * J lanes, column by column, with the J parent types adjacent. Every inner
loop runs over lanes and vectorizes, with few horizontal sums. Functions take whole arrays and indices, because slicing
a row costs more than the arithmetic on it.

Names: C children, P positions, I slots of a position, J parent types, T iterations. A child's pose is (rows, q), W is
(q, L) for each slot. ``child`` (P, I) and ``kind`` (I) are the child and the W of each slot; ``offsets`` (I, D) are
added to the votes, (0, D) if there is none. Statistics of parents are (T, P, rows, L) or (T, P, J). Buffers: ``votes``
(I, rows, L), with I rounded up to a multiple of 4; ``columns`` (8, q', J) and ``wide`` (8, L) are views of the same
memory, and so are ``shares`` (T, P, I, J) and ``blocks`` (T, P, I / 4, 4 J).
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

LARGEST_VOTE = np.float32(1e6)


@inner
def exponential(blocks, t, p, g, powers, scales):
    """Replace blocks[t, p, g] by its exponentials. ``scales`` is the memory of ``powers`` (int32) read as float32."""
    for j in range(blocks.shape[3]):
        x = max(blocks[t, p, g, j], LOWEST)
        k = np.floor(x * LOG2_E + HALF)
        powers[j] = (np.int32(k) + np.int32(127)) << np.int32(23)
        f = x - k * LN2_HIGH - k * LN2_LOW
        blocks[t, p, g, j] = ONE + f * (ONE + f * (C2 + f * (C3 + f * (C4 + f * (C5 + f * C6)))))
    for j in range(blocks.shape[3]):
        blocks[t, p, g, j] *= scales[j]


@inner
def fill_columns(columns, s):
    """Repeat the numbers of column 0 of slot s in all columns."""
    for q in range(columns.shape[1] - 1):
        for j in range(columns.shape[2]):
            columns[s, q + 1, j] = columns[s, 0, j]


@inner
def add_columns(columns, s):
    """Add up all columns of slot s in column 0."""
    if columns.shape[1] == 4:
        for j in range(columns.shape[2]):
            columns[s, 0, j] = (columns[s, 0, j] + columns[s, 1, j]) + (columns[s, 2, j] + columns[s, 3, j])
        return
    for q in range(columns.shape[1] - 1):
        for j in range(columns.shape[2]):
            columns[s, 0, j] += columns[s, q + 1, j]


@inner
def compute_votes(votes, p, poses, weights, offsets, child, kind):
    """V = M W + offset for all slots of a position."""
    _, inner, lanes = weights.shape
    rows = poses.shape[1]
    for i in range(child.shape[1]):
        c, k = child[p, i], kind[i]
        if rows == 4 and inner == 4 and offsets.shape[0] == 0:  # matrix capsules: W is read once for all rows
            a0, a1, a2, a3 = poses[c, 0, 0], poses[c, 0, 1], poses[c, 0, 2], poses[c, 0, 3]
            b0, b1, b2, b3 = poses[c, 1, 0], poses[c, 1, 1], poses[c, 1, 2], poses[c, 1, 3]
            c0, c1, c2, c3 = poses[c, 2, 0], poses[c, 2, 1], poses[c, 2, 2], poses[c, 2, 3]
            d0, d1, d2, d3 = poses[c, 3, 0], poses[c, 3, 1], poses[c, 3, 2], poses[c, 3, 3]
            for n in range(lanes):
                w0, w1, w2, w3 = weights[k, 0, n], weights[k, 1, n], weights[k, 2, n], weights[k, 3, n]
                votes[i, 0, n] = min(max(a0 * w0 + a1 * w1 + a2 * w2 + a3 * w3, -LARGEST_VOTE), LARGEST_VOTE)
                votes[i, 1, n] = min(max(b0 * w0 + b1 * w1 + b2 * w2 + b3 * w3, -LARGEST_VOTE), LARGEST_VOTE)
                votes[i, 2, n] = min(max(c0 * w0 + c1 * w1 + c2 * w2 + c3 * w3, -LARGEST_VOTE), LARGEST_VOTE)
                votes[i, 3, n] = min(max(d0 * w0 + d1 * w1 + d2 * w2 + d3 * w3, -LARGEST_VOTE), LARGEST_VOTE)
            continue
        for r in range(rows):
            for n in range(lanes):
                votes[i, r, n] = ZERO
            for q in range(inner):
                m = poses[c, r, q]
                for n in range(lanes):
                    votes[i, r, n] += m * weights[k, q, n]
            if offsets.shape[0]:
                width = offsets.shape[1] // rows
                types = lanes // width
                for q in range(width):
                    added = offsets[i, r * width + q]
                    for n in range(q * types, (q + 1) * types):
                        votes[i, r, n] += added
            for n in range(lanes):
                votes[i, r, n] = min(max(votes[i, r, n], -LARGEST_VOTE), LARGEST_VOTE)


@inner
def log_densities(into, t, p, i, votes, means, inverses, u, bases, columns, wide):
    """into[t, p, i] = base - half the squared distance of the slot's vote from the parents of step u."""
    _, rows, lanes = votes.shape
    if rows == 4:  # the sum over rows stays in registers
        for n in range(lanes):
            x0, x1 = votes[i, 0, n] - means[u, p, 0, n], votes[i, 1, n] - means[u, p, 1, n]
            x2, x3 = votes[i, 2, n] - means[u, p, 2, n], votes[i, 3, n] - means[u, p, 3, n]
            near = x0 * x0 * inverses[u, p, 0, n] + x1 * x1 * inverses[u, p, 1, n]
            wide[0, n] = near + x2 * x2 * inverses[u, p, 2, n] + x3 * x3 * inverses[u, p, 3, n]
    else:
        for n in range(lanes):
            wide[0, n] = ZERO
        for r in range(rows):
            for n in range(lanes):
                x = votes[i, r, n] - means[u, p, r, n]
                wide[0, n] += x * x * inverses[u, p, r, n]
    add_columns(columns, 0)
    for j in range(into.shape[3]):
        into[t, p, i, j] = bases[u, p, j] - HALF * columns[0, 0, j]


@inner
def guess_mean(center, p, votes, active, child, first, floor):
    """Estimate the mean of a position's votes before routing from an eighth of its slots.

    A variance summed around c instead of the mean m loses a factor of (m - c)^2 / variance in precision. For a mean
    over slots with a fraction f of the total weight this is at most 1 / f, and the heaviest of eight combs of slots has
    f >= 1/8.
    """
    slots = child.shape[1]
    _, rows, lanes = votes.shape
    best, heaviest = 0, -ONE
    for comb in range(8):
        total = ZERO
        for i in range(comb, slots, 8):
            total += first[child[p, i]] * active[child[p, i]]
        if total > heaviest:
            best, heaviest = comb, total
    center[:, :] = ZERO
    total = ZERO
    for i in range(best, slots, 8):
        weight = first[child[p, i]] * active[child[p, i]] + floor / np.float32(slots)
        total += weight
        for r in range(rows):
            for n in range(lanes):
                center[r, n] += weight * votes[i, r, n]
    for r in range(rows):
        for n in range(lanes):
            center[r, n] /= total


@inner
def m_step(t, p, votes, active, child, shares, floor, epsilon, center, means, inverses, masses, columns, wide):
    """M-step t of a position: mass, mean and inverse variance; ``center`` is an estimate of the mean, for precision.

    Four slots at a time, so that the sums are read and written a quarter as often.
    """
    slots = child.shape[1]
    _, rows, lanes = votes.shape
    types = shares.shape[3]
    spread = floor / np.float32(slots)
    masses[t, p, :] = ZERO
    means[t, p, :, :] = ZERO
    inverses[t, p, :, :] = ZERO
    for i in range(0, slots, 4):
        for s in range(4):
            if i + s < slots:
                a = active[child[p, i + s]]
                for j in range(types):
                    weight = shares[0, p, i + s, j] * a
                    masses[t, p, j] += weight
                    columns[s, 0, j] = weight + spread
                fill_columns(columns, s)
            else:
                for n in range(lanes):
                    wide[s, n] = ZERO
        for r in range(rows):
            for n in range(lanes):
                guess = center[r, n]
                x0, x1 = votes[i, r, n] - guess, votes[i + 1, r, n] - guess
                x2, x3 = votes[i + 2, r, n] - guess, votes[i + 3, r, n] - guess
                y0, y1, y2, y3 = wide[0, n] * x0, wide[1, n] * x1, wide[2, n] * x2, wide[3, n] * x3
                means[t, p, r, n] += (y0 + y1) + (y2 + y3)
                inverses[t, p, r, n] += (y0 * x0 + y1 * x1) + (y2 * x2 + y3 * x3)
    for j in range(types):
        columns[0, 0, j] = ONE / (masses[t, p, j] + floor)
    fill_columns(columns, 0)
    for r in range(rows):
        for n in range(lanes):
            x = means[t, p, r, n] * wide[0, n]
            inverses[t, p, r, n] = ONE / (max(inverses[t, p, r, n] * wide[0, n] - x * x, ZERO) + epsilon)
            means[t, p, r, n] = center[r, n] + x


@inner
def activate(t, p, inverses, masses, beta_u, beta_a, temperature, expected, costs, logits, bases):
    """Cost and logit of each parent, and the log of activation over deviation, from which the E-step starts."""
    _, _, rows, lanes = inverses.shape
    types = beta_u.shape[0]
    size = np.float32(rows * lanes // types)
    for j in range(types):
        spread = ZERO
        for r in range(rows):
            for n in range(j, lanes, types):
                spread -= HALF * np.log(inverses[t, p, r, n])
        cost = (size * beta_u[j] + spread) / expected
        z = temperature * (beta_a[j] - masses[t, p, j] * cost)
        costs[t, p, j], logits[t, p, j] = cost, z
        bases[t, p, j] = min(z, ZERO) - np.log1p(np.exp(-abs(z))) - spread


@inner
def normalize_assignments(t, child, shares, blocks, sums, peak, powers, scales):
    """Turn log densities into assignments that sum to one over all parents of a child, at all positions.

    ``sums`` receives the log of each child's normalizer.
    """
    positions, slots = child.shape
    types = shares.shape[3]
    for c in range(peak.shape[0]):
        sums[t, c] = ZERO
    for p in range(positions):
        for i in range(slots):
            highest = peak[child[p, i]]
            for j in range(types):
                shares[0, p, i, j] -= highest
        for g in range(blocks.shape[2]):
            exponential(blocks, 0, p, g, powers, scales)
        for i in range(slots):
            found = ZERO
            for j in range(types):
                found += shares[0, p, i, j]
            sums[t, child[p, i]] += found
    for p in range(positions):
        for i in range(slots):
            scale = ONE / sums[t, child[p, i]]
            for j in range(types):
                shares[0, p, i, j] *= scale
    for c in range(peak.shape[0]):
        sums[t, c] = peak[c] + np.log(sums[t, c])


@compiled
def em_forward(
    poses, active, weights, offsets, child, kind, first, beta_u, beta_a, temperatures, expected, floor, epsilon,
    means, inverses, masses, costs, logits, bases, sums, shares, blocks, votes, dvotes, columns, wide, powers, scales,
):  # fmt: skip
    """All iterations of one image. Arguments from ``means`` on are outputs; ``first`` (C) is 1 / number of parents.

    ``shares`` is a buffer for one iteration; ``dvotes`` is a buffer that only the backward pass uses.
    """
    positions, slots = child.shape
    types = beta_u.shape[0]
    last = means.shape[0] - 1
    peak = np.empty(poses.shape[0], np.float32)
    center = np.empty((votes.shape[1], votes.shape[2]), np.float32)
    for t in range(last + 1):
        peak[:] = -np.float32(3e38)
        for p in range(positions):
            compute_votes(votes, p, poses, weights, offsets, child, kind)
            if t == 0:
                for i in range(slots):
                    shares[0, p, i, :] = first[child[p, i]]
                guess_mean(center, p, votes, active, child, first, floor)
            else:
                for r in range(center.shape[0]):
                    for n in range(center.shape[1]):
                        center[r, n] = means[t - 1, p, r, n]
            m_step(t, p, votes, active, child, shares, floor, epsilon, center, means, inverses, masses, columns, wide)
            activate(t, p, inverses, masses, beta_u, beta_a, temperatures[t], expected, costs, logits, bases)
            if t < last:  # this position's assignments are no longer needed: overwrite them
                for i in range(slots):
                    log_densities(shares, 0, p, i, votes, means, inverses, t, bases, columns, wide)
                    highest = peak[child[p, i]]
                    for j in range(types):
                        highest = max(highest, shares[0, p, i, j])
                    peak[child[p, i]] = highest
        if t < last:
            normalize_assignments(t, child, shares, blocks, sums, peak, powers, scales)
