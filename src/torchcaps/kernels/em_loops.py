"""EM routing of one image, forward and backward, as loops that numba compiles.

Votes are made where they are used and never stored. A vote's numbers lie as rows of lanes: row r of the pose matrix,
and in it L = q' * J lanes, column by column with the J parent types side by side. Every inner loop runs over lanes and
becomes vector instructions with hardly a sum across them. Numbers are float32 on purpose: one Python float would turn a
whole expression into float64.

Names: C children, P positions, I slots of a position, J parent types, T iterations. A child's pose is (rows, q), W is
(q, L) for each slot. ``child`` (P, I) and ``kind`` (I) say which child and which W a slot has, ``offsets`` (I, D) what
is added to its votes, (0, D) if nothing is. ``votes`` is room for four slots, (4, rows, L). Statistics of parents are
(T, P, rows, L) or (T, P, J).
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
def widen(wide, narrow):
    """Repeat a number per type (J) for every column of the pose: (L)."""
    types = narrow.shape[0]
    for start in range(0, wide.shape[0], types):
        for j in range(types):
            wide[start + j] = narrow[j]


@compiled
def cast_votes(votes, pose, weight, offsets, slot):
    """V = M W + offset of one slot: pose (rows, q), weight (q, L) to votes (rows, L)."""
    inner, lanes = weight.shape
    for r in range(pose.shape[0]):
        if inner == 4:
            m0, m1, m2, m3 = pose[r, 0], pose[r, 1], pose[r, 2], pose[r, 3]
            for n in range(lanes):
                votes[r, n] = m0 * weight[0, n] + m1 * weight[1, n] + m2 * weight[2, n] + m3 * weight[3, n]
        else:
            votes[r, :] = ZERO
            for k in range(inner):
                m = pose[r, k]
                for n in range(lanes):
                    votes[r, n] += m * weight[k, n]
        if offsets.shape[0]:
            columns = offsets.shape[1] // pose.shape[0]
            types = lanes // columns
            for s in range(columns):
                added = offsets[slot, r * columns + s]
                for n in range(s * types, (s + 1) * types):
                    votes[r, n] += added
        for n in range(lanes):
            votes[r, n] = min(max(votes[r, n], -LARGEST_VOTE), LARGEST_VOTE)


@compiled
def log_densities(row, votes, mean, inverse, base, wide):
    """base - half the squared distance in units of the variance: one slot, all types. ``wide`` is room for lanes."""
    types = row.shape[0]
    wide[:] = ZERO
    for r in range(votes.shape[0]):
        for n in range(wide.shape[0]):
            x = votes[r, n] - mean[r, n]
            wide[n] += x * x * inverse[r, n]
    for j in range(types):
        row[j] = ZERO
    for start in range(0, wide.shape[0], types):
        for j in range(types):
            row[j] += wide[start + j]
    for j in range(types):
        row[j] = base[j] - HALF * row[j]


@compiled
def fit_parents(
    poses, active, weights, offsets, child, kind, share, floor, epsilon, centre, mean, inverse, mass, votes,
):  # fmt: skip
    """M-step: mass, mean and inverse variance of every parent; ``centre`` is a guess of the mean, for exactness.

    Four slots at a time, so that the sums are read and written a quarter as often.
    """
    positions, slots = child.shape
    _, rows, lanes = votes.shape
    types = share.shape[2]
    spread = floor / np.float32(slots)
    weight, wide = np.empty(types, np.float32), np.empty((4, lanes), np.float32)
    for p in range(positions):
        mass[p, :] = ZERO
        mean[p, :, :] = ZERO
        inverse[p, :, :] = ZERO
        for i in range(0, slots, 4):
            for n in range(4):
                if i + n < slots:
                    c = child[p, i + n]
                    cast_votes(votes[n], poses[c], weights[kind[i + n]], offsets, i + n)
                    for j in range(types):
                        weight[j] = share[p, i + n, j] * active[c]
                        mass[p, j] += weight[j]
                        weight[j] += spread
                    widen(wide[n], weight)
                else:
                    wide[n, :] = ZERO
            for r in range(rows):
                for n in range(lanes):
                    guess = centre[p, r, n]
                    x0, x1 = votes[0, r, n] - guess, votes[1, r, n] - guess
                    x2, x3 = votes[2, r, n] - guess, votes[3, r, n] - guess
                    y0, y1, y2, y3 = wide[0, n] * x0, wide[1, n] * x1, wide[2, n] * x2, wide[3, n] * x3
                    mean[p, r, n] += (y0 + y1) + (y2 + y3)
                    inverse[p, r, n] += (y0 * x0 + y1 * x1) + (y2 * x2 + y3 * x3)
        for j in range(types):
            weight[j] = ONE / (mass[p, j] + floor)
        widen(wide[0], weight)
        for r in range(rows):
            for n in range(lanes):
                x = mean[p, r, n] * wide[0, n]
                inverse[p, r, n] = ONE / (max(inverse[p, r, n] * wide[0, n] - x * x, ZERO) + epsilon)
                mean[p, r, n] = centre[p, r, n] + x


@compiled
def activate(inverse, mass, beta_u, beta_a, temperature, expected, cost, logit, base):
    """What an active parent costs, its logit, and the log of activation over spread, where the E-step begins."""
    positions, rows, lanes = inverse.shape
    types = beta_u.shape[0]
    size = np.float32(rows * lanes // types)
    for p in range(positions):
        for j in range(types):
            spread = ZERO
            for r in range(rows):
                for n in range(j, lanes, types):
                    spread -= HALF * np.log(inverse[p, r, n])
            cost[p, j] = (size * beta_u[j] + spread) / expected
            z = temperature * (beta_a[j] - mass[p, j] * cost[p, j])
            logit[p, j] = z
            base[p, j] = min(z, ZERO) - np.log1p(np.exp(-abs(z))) - spread


@compiled
def assign_children(poses, weights, offsets, child, kind, mean, inverse, base, share, sums, votes, powers, scales):
    """E-step: share every child out among all its parents; ``sums`` (C) gets the log of what it was divided by."""
    positions, slots = child.shape
    types = share.shape[2]
    wide = np.empty(votes.shape[2], np.float32)
    peak = np.full(sums.shape[0], -np.float32(3e38), np.float32)
    for p in range(positions):
        for i in range(slots):
            c = child[p, i]
            cast_votes(votes[0], poses[c], weights[kind[i]], offsets, i)
            log_densities(share[p, i], votes[0], mean[p], inverse[p], base[p], wide)
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
    last = means.shape[0] - 1
    for p in range(positions):
        for i in range(slots):
            share[p, i, :] = first[child[p, i]]
        cast_votes(votes[0], poses[child[p, 0]], weights[kind[0]], offsets, 0)
        means[last, p] = votes[0]
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
