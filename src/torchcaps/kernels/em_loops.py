"""EM routing of one image, forward and backward, as loops that numba compiles.

Votes are made where they are used and never stored. Every inner loop runs over the parent types J, which lie side by
side in memory: it becomes vector instructions with hardly a sum across lanes. Numbers are float32 on purpose: one
Python float would turn a whole expression into float64.

Names: C children, P positions, I slots of a position, J parent types, T iterations. A child's pose is (rows, q), W is
(q, q2) for each slot and type, a vote is D = rows * q2 numbers. ``child`` (P, I) and ``kind`` (I) say which child and
which W a slot has. ``votes`` is room for four slots, (4, D, J). Statistics of parents are (T, P, D, J) or (T, P, J).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

ZERO, HALF, ONE, TWO = np.float32(0), np.float32(0.5), np.float32(1), np.float32(2)
LARGEST_VOTE = np.float32(1e6)
# exp(x) = 2^k exp(f) with |f| <= ln(2) / 2, and exp(f) by its series.
LOG2_E, LN2_HIGH, LN2_LOW = np.float32(1.4426950408889634), np.float32(0.693359375), np.float32(-2.12194440e-4)
LOWEST = np.float32(-87.0)
C2, C3, C4, C5, C6 = np.float32(1 / 2), np.float32(1 / 6), np.float32(1 / 24), np.float32(1 / 120), np.float32(1 / 720)

compiled: Any = njit(nogil=True, fastmath={"contract", "reassoc", "nsz", "arcp"}, cache=True, error_model="numpy")


@compiled
def exponential(row, powers, scales):
    """Replace a row by its exponentials. ``scales`` is the memory of ``powers`` (int32) read as float32."""
    for j in range(row.shape[0]):
        x = max(row[j], LOWEST)
        k = np.floor(x * LOG2_E + HALF)
        powers[j] = (np.int32(k) + np.int32(127)) << np.int32(23)
        f = x - k * LN2_HIGH - k * LN2_LOW
        row[j] = ONE + f * (ONE + f * (C2 + f * (C3 + f * (C4 + f * (C5 + f * C6)))))
    for j in range(row.shape[0]):
        row[j] *= scales[j]


@compiled
def cast_votes(votes, pose, weight, offset):
    """V = M W + offset of one slot: pose (rows, q), weight (q, q2, J), offset (D) to votes (D, J)."""
    inner, outer, types = weight.shape
    for r in range(pose.shape[0]):
        for s in range(outer):
            d = r * outer + s
            start = offset[d]
            if inner == 4:
                m0, m1, m2, m3 = pose[r, 0], pose[r, 1], pose[r, 2], pose[r, 3]
                for j in range(types):
                    v = m0 * weight[0, s, j] + m1 * weight[1, s, j] + m2 * weight[2, s, j] + m3 * weight[3, s, j]
                    votes[d, j] = min(max(v + start, -LARGEST_VOTE), LARGEST_VOTE)
            else:
                for j in range(types):
                    votes[d, j] = start
                for k in range(inner):
                    m = pose[r, k]
                    for j in range(types):
                        votes[d, j] += m * weight[k, s, j]
                for j in range(types):
                    votes[d, j] = min(max(votes[d, j], -LARGEST_VOTE), LARGEST_VOTE)


@compiled
def log_densities(row, votes, mean, inverse, base):
    """base - half the squared distance in units of the variance: one slot, all types."""
    for j in range(row.shape[0]):
        row[j] = base[j]
    for d in range(votes.shape[0]):
        for j in range(row.shape[0]):
            x = votes[d, j] - mean[d, j]
            row[j] -= HALF * x * x * inverse[d, j]


@compiled
def fit_parents(
    poses, active, weights, offsets, child, kind, share, floor, epsilon, centre, mean, inverse, mass, votes,
):  # fmt: skip
    """M-step: mass, mean and inverse variance of every parent; ``centre`` is a guess of the mean, for exactness.

    Four slots at a time, so that the sums are read and written a quarter as often.
    """
    positions, slots = child.shape
    _, size, types = votes.shape
    spread = floor / np.float32(slots)
    r = np.empty((4, types), np.float32)
    for p in range(positions):
        mass[p, :] = ZERO
        mean[p, :, :] = ZERO
        inverse[p, :, :] = ZERO
        for i in range(0, slots, 4):
            for n in range(4):
                if i + n < slots:
                    c = child[p, i + n]
                    cast_votes(votes[n], poses[c], weights[kind[i + n]], offsets[i + n])
                    for j in range(types):
                        r[n, j] = share[p, i + n, j] * active[c]
                        mass[p, j] += r[n, j]
                        r[n, j] += spread
                else:
                    r[n, :] = ZERO
            for d in range(size):
                for j in range(types):
                    guess = centre[p, d, j]
                    x0, x1 = votes[0, d, j] - guess, votes[1, d, j] - guess
                    x2, x3 = votes[2, d, j] - guess, votes[3, d, j] - guess
                    y0, y1, y2, y3 = r[0, j] * x0, r[1, j] * x1, r[2, j] * x2, r[3, j] * x3
                    mean[p, d, j] += (y0 + y1) + (y2 + y3)
                    inverse[p, d, j] += (y0 * x0 + y1 * x1) + (y2 * x2 + y3 * x3)
        for d in range(size):
            for j in range(types):
                norm = ONE / (mass[p, j] + floor)
                x = mean[p, d, j] * norm
                inverse[p, d, j] = ONE / (max(inverse[p, d, j] * norm - x * x, ZERO) + epsilon)
                mean[p, d, j] = centre[p, d, j] + x


@compiled
def activate(inverse, mass, beta_u, beta_a, temperature, expected, cost, logit, base):
    """What an active parent costs, its logit, and the log of activation over spread, where the E-step begins."""
    positions, size, types = inverse.shape
    for p in range(positions):
        for j in range(types):
            spread = ZERO
            for d in range(size):
                spread -= HALF * np.log(inverse[p, d, j])
            cost[p, j] = (np.float32(size) * beta_u[j] + spread) / expected
            z = temperature * (beta_a[j] - mass[p, j] * cost[p, j])
            logit[p, j] = z
            base[p, j] = min(z, ZERO) - np.log1p(np.exp(-abs(z))) - spread


@compiled
def assign_children(poses, weights, offsets, child, kind, mean, inverse, base, share, sums, votes, powers, scales):
    """E-step: share every child out among all its parents; ``sums`` (C) gets the log of what it was divided by."""
    positions, slots = child.shape
    types = share.shape[2]
    peak = np.full(sums.shape[0], -np.float32(3e38), np.float32)
    for p in range(positions):
        for i in range(slots):
            c = child[p, i]
            cast_votes(votes[0], poses[c], weights[kind[i]], offsets[i])
            log_densities(share[p, i], votes[0], mean[p], inverse[p], base[p])
            highest = peak[c]
            for j in range(types):
                highest = max(highest, share[p, i, j])
            peak[c] = highest
    sums[:] = ZERO
    for p in range(positions):
        for i in range(slots):
            c = child[p, i]
            for j in range(types):
                share[p, i, j] -= peak[c]
            exponential(share[p, i], powers, scales)
            found = ZERO
            for j in range(types):
                found += share[p, i, j]
            sums[c] += found
    for p in range(positions):
        for i in range(slots):
            scale = ONE / sums[child[p, i]]
            for j in range(types):
                share[p, i, j] *= scale
    for c in range(sums.shape[0]):
        sums[c] = peak[c] + np.log(sums[c])


@compiled
def route(
    poses, active, weights, offsets, child, kind, first, beta_u, beta_a, temperatures, expected, floor, epsilon,
    means, inverses, masses, costs, logits, bases, sums, share, votes, dvotes, powers, scales,
):  # fmt: skip
    """All iterations of one image. From ``means`` on, the arguments are filled in; ``first`` (C) is 1 / parents.

    ``dvotes`` is room for the gradient's loops, which take the same arguments.
    """
    positions, slots = child.shape
    for p in range(positions):
        for i in range(slots):
            share[p, i, :] = first[child[p, i]]
        cast_votes(votes[0], poses[child[p, 0]], weights[kind[0]], offsets[0])
        means[-1, p] = votes[0]
    last = means.shape[0] - 1
    # A variance is exact when the mean is known before. Later steps know the last one's; the first is done twice.
    centre = means[last].copy()
    fit_parents(
        poses, active, weights, offsets, child, kind, share, floor, epsilon, centre, means[0], inverses[0],
        masses[0], votes,
    )  # fmt: skip
    centre[:] = means[0]
    for t in range(last + 1):
        fit_parents(
            poses, active, weights, offsets, child, kind, share, floor, epsilon, centre, means[t], inverses[t],
            masses[t], votes,
        )  # fmt: skip
        centre[:] = means[t]
        activate(inverses[t], masses[t], beta_u, beta_a, temperatures[t], expected, costs[t], logits[t], bases[t])
        if t < last:
            assign_children(
                poses, weights, offsets, child, kind, means[t], inverses[t], bases[t], share, sums[t], votes,
                powers, scales,
            )  # fmt: skip
