"""Forward pass of fused EM routing for one image, as loops compiled by numba.

The votes of one parent position at a time are computed in cache, used, and discarded. Names are those of ``em_votes``.
"""

from __future__ import annotations

import numpy as np

from torchcaps.kernels.em_votes import HALF, ONE, ZERO, compute_votes, exponential, fill_columns, log_densities
from torchcaps.kernels.numba_support import compiled, inner


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
