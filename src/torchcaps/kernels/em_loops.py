"""EM routing of one image, as loops that numba compiles.

Votes of one parent position at a time are made, in cache, used for all that can be done there, and forgotten. Names are
those of ``em_votes``.
"""

from __future__ import annotations

import numpy as np

from torchcaps.kernels.em_votes import HALF, ONE, ZERO, cast_votes, exponential, log_densities, widen
from torchcaps.kernels.numba_support import compiled, inner


@inner
def guess_mean(centre, p, votes, active, child, first, floor):
    """A mean near that of all votes of a position, before any routing, from an eighth of its slots.

    A variance summed up around c instead of the mean m loses (m - c)^2 / variance of its digits. For a mean over slots
    that hold a share f of all weight that is at most 1 / f; of eight combs of slots the heaviest has f >= 1/8.
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
    centre[:, :] = ZERO
    total = ZERO
    for i in range(best, slots, 8):
        weight = first[child[p, i]] * active[child[p, i]] + floor / np.float32(slots)
        total += weight
        for r in range(rows):
            for n in range(lanes):
                centre[r, n] += weight * votes[i, r, n]
    for r in range(rows):
        for n in range(lanes):
            centre[r, n] /= total


@inner
def fit_parents(t, p, votes, active, child, shares, floor, epsilon, centre, means, inverses, masses, columns, wide):
    """M-step t of a position: mass, mean and inverse variance; ``centre`` is a guess of the mean, for exactness.

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
                widen(columns, s)
            else:
                for n in range(lanes):
                    wide[s, n] = ZERO
        for r in range(rows):
            for n in range(lanes):
                guess = centre[r, n]
                x0, x1 = votes[i, r, n] - guess, votes[i + 1, r, n] - guess
                x2, x3 = votes[i + 2, r, n] - guess, votes[i + 3, r, n] - guess
                y0, y1, y2, y3 = wide[0, n] * x0, wide[1, n] * x1, wide[2, n] * x2, wide[3, n] * x3
                means[t, p, r, n] += (y0 + y1) + (y2 + y3)
                inverses[t, p, r, n] += (y0 * x0 + y1 * x1) + (y2 * x2 + y3 * x3)
    for j in range(types):
        columns[0, 0, j] = ONE / (masses[t, p, j] + floor)
    widen(columns, 0)
    for r in range(rows):
        for n in range(lanes):
            x = means[t, p, r, n] * wide[0, n]
            inverses[t, p, r, n] = ONE / (max(inverses[t, p, r, n] * wide[0, n] - x * x, ZERO) + epsilon)
            means[t, p, r, n] = centre[r, n] + x


@inner
def activate(t, p, inverses, masses, beta_u, beta_a, temperature, expected, costs, logits, bases):
    """What an active parent costs, its logit, and the log of activation over spread, where the E-step begins."""
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
def share_out(t, child, shares, blocks, sums, peak, powers, scales):
    """From log densities to shares that add up to one over all parents of a child, wherever they are.

    ``sums`` gets the log of what a child's densities were divided by.
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
def route(
    poses, active, weights, offsets, child, kind, first, beta_u, beta_a, temperatures, expected, floor, epsilon,
    means, inverses, masses, costs, logits, bases, sums, shares, blocks, votes, dvotes, columns, wide, powers, scales,
):  # fmt: skip
    """All iterations of one image. From ``means`` on, the arguments are filled in; ``first`` (C) is 1 / parents.

    ``shares`` is room for one iteration, ``dvotes`` room for the gradient's loops, which take the same arguments.
    """
    positions, slots = child.shape
    types = beta_u.shape[0]
    last = means.shape[0] - 1
    peak = np.empty(poses.shape[0], np.float32)
    centre = np.empty((votes.shape[1], votes.shape[2]), np.float32)
    for t in range(last + 1):
        peak[:] = -np.float32(3e38)
        for p in range(positions):
            cast_votes(votes, p, poses, weights, offsets, child, kind)
            if t == 0:
                for i in range(slots):
                    shares[0, p, i, :] = first[child[p, i]]
                guess_mean(centre, p, votes, active, child, first, floor)
            else:
                for r in range(centre.shape[0]):
                    for n in range(centre.shape[1]):
                        centre[r, n] = means[t - 1, p, r, n]
            fit_parents(
                t, p, votes, active, child, shares, floor, epsilon, centre, means, inverses, masses, columns, wide
            )
            activate(t, p, inverses, masses, beta_u, beta_a, temperatures[t], expected, costs, logits, bases)
            if t < last:  # the shares of this position have been used: what follows them takes their place
                for i in range(slots):
                    log_densities(shares, 0, p, i, votes, means, inverses, t, bases, columns, wide)
                    highest = peak[child[p, i]]
                    for j in range(types):
                        highest = max(highest, shares[0, p, i, j])
                    peak[child[p, i]] = highest
        if t < last:
            share_out(t, child, shares, blocks, sums, peak, powers, scales)
