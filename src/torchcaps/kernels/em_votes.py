"""Loops over the votes of one parent position that the forward and backward pass of fused EM routing share.

Votes are stored as rows of lanes: row r of the pose matrix has L = q' * J lanes, column by column, with the J parent
types adjacent. Every inner loop runs over lanes and vectorizes, with few horizontal sums. All constants are float32: a
Python float would promote a whole expression to float64. Functions take whole arrays and indices, because slicing a row
costs more than the arithmetic on it.

Names: C children, P positions, I slots of a position, J parent types, T iterations. A child's pose is (rows, q), W is
(q, L) for each slot. ``child`` (P, I) and ``kind`` (I) are the child and the W of each slot; ``offsets`` (I, D) are
added to the votes, (0, D) if there is none. Statistics of parents are (T, P, rows, L) or (T, P, J). Buffers: ``votes``
(I, rows, L), with I rounded up to a multiple of 4; ``columns`` (8, q', J) and ``wide`` (8, L) are views of the same
memory, and so are ``shares`` (T, P, I, J) and ``blocks`` (T, P, I / 4, 4 J).
"""

from __future__ import annotations

import numpy as np

from torchcaps.kernels.numba_support import inner

ZERO, HALF, ONE, TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)
LARGEST_VOTE = np.float32(1e6)
# exp(x) = 2^k exp(f) with |f| <= ln(2) / 2, and exp(f) by its series.
LOG2_E, LN2_HIGH, LN2_LOW = np.float32(1.4426950408889634), np.float32(0.693359375), np.float32(-2.12194440e-4)
LOWEST = np.float32(-87.0)
C2, C3, C4, C5, C6 = np.float32(1 / 2), np.float32(1 / 6), np.float32(1 / 24), np.float32(1 / 120), np.float32(1 / 720)


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
