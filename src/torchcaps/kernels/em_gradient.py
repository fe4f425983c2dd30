"""The gradient of EM routing of one image, through all iterations, as loops that numba compiles.

Everything of the size of a vote is made again from pose and W. The gradient of a vote is a sum over the iterations of
(a number per slot and parent) times (a vector per parent), so only those numbers are kept, in work arrays:

    dV = sum_t s_t (dmean_t + 2 (V - mean_t) dvariance_t)  -  sum_t dlog_t (V - mean_t) / variance_t

with s_t the normalised weight of the vote in the M-step and dlog_t the gradient of its log density in the E-step.
Names are those of ``em_loops``.
"""

from __future__ import annotations

import numpy as np

from torchcaps.kernels.em_loops import (
    HALF,
    LARGEST_VOTE,
    ONE,
    TWO,
    ZERO,
    cast_votes,
    compiled,
    exponential,
    log_densities,
    widen,
)


@compiled
def finish_parents(
    t, means, inverses, masses, costs, beta_u, temperature, expected, floor, epsilon,
    dmeans, dvariances, dlogit, dspread, dmass, balance, norms, dbeta_u, dbeta_a,
):  # fmt: skip
    """Gradients of one M-step's statistics, once all that uses them has been gone through."""
    _, positions, rows, lanes = means.shape
    types = beta_u.shape[0]
    size = np.float32(rows * lanes // types)
    for p in range(positions):
        for j in range(types):
            dcost = -temperature * dlogit[p, j]
            dbeta_a[j] += temperature * dlogit[p, j]
            dbeta_u[j] += dcost * masses[t, p, j] * size / expected
            dmass[p, j] = dcost * costs[t, p, j]
            spread = dcost * masses[t, p, j] / expected + dspread[p, j]
            norms[t, p, j] = ONE / (masses[t, p, j] + floor)
            total = ZERO
            for r in range(rows):
                for n in range(j, lanes, types):
                    dvariances[t, p, r, n] += HALF * spread * inverses[t, p, r, n]
                    total += dmeans[t, p, r, n] * means[t, p, r, n]
                    total += dvariances[t, p, r, n] * (ONE / inverses[t, p, r, n] - epsilon)
            balance[p, j] = total


@compiled
def through_fit(
    t, poses, active, weights, offsets, child, kind, first, means, inverses, bases, sums,
    dmeans, dvariances, dmass, balance, norms, shares, slopes, leaning, dactive, four_votes, powers, scales,
):  # fmt: skip
    """Back through an M-step: to the children's activations and, in ``slopes``, to the assignments."""
    positions, slots = child.shape
    votes = four_votes[0]
    rows, lanes = votes.shape
    types = shares.shape[3]
    leaning[:] = ZERO
    dshare, wide = np.empty(types, np.float32), np.empty(lanes, np.float32)
    for p in range(positions):
        for i in range(slots):
            c = child[p, i]
            cast_votes(votes, poses[c], weights[kind[i]], offsets, i)
            row = shares[t, p, i]
            if t == 0:
                row[:] = first[c]
            else:
                log_densities(row, votes, means[t - 1, p], inverses[t - 1, p], bases[t - 1, p], wide)
                for j in range(types):
                    row[j] -= sums[t - 1, c]
                exponential(row, powers, scales)
            wide[:] = ZERO
            for r in range(rows):
                for n in range(lanes):
                    x = votes[r, n] - means[t, p, r, n]
                    wide[n] += dmeans[t, p, r, n] * votes[r, n] + dvariances[t, p, r, n] * x * x
            for j in range(types):
                dshare[j] = -balance[p, j]
            for start in range(0, lanes, types):
                for j in range(types):
                    dshare[j] += wide[start + j]
            felt = ZERO
            for j in range(types):
                dshare[j] = dshare[j] * norms[t, p, j] + dmass[p, j]
                felt += dshare[j] * row[j]
            dactive[c] += felt
            if t > 0:
                leaning[c] += felt * active[c]
                for j in range(types):
                    slopes[t - 1, p, i, j] = dshare[j] * active[c]


@compiled
def through_assignment(
    t, poses, weights, offsets, child, kind, means, inverses, logits, shares, slopes, leaning,
    dmeans, dvariances, dlogit, dspread, votes,
):  # fmt: skip
    """Back through the E-step after M-step t, to that step's statistics; ``slopes`` become those of log densities."""
    positions, slots = child.shape
    _, rows, lanes = votes.shape
    types = shares.shape[3]
    wide = np.empty((4, lanes), np.float32)
    for p in range(positions):
        dspread[p, :] = ZERO
        for i in range(0, slots, 4):
            for n in range(4):
                if i + n < slots:
                    c = child[p, i + n]
                    cast_votes(votes[n], poses[c], weights[kind[i + n]], offsets, i + n)
                    slope = slopes[t, p, i + n]
                    for j in range(types):
                        slope[j] = shares[t + 1, p, i + n, j] * (slope[j] - leaning[c])
                        dspread[p, j] -= slope[j]
                    widen(wide[n], slope)
                else:
                    wide[n, :] = ZERO
            for r in range(rows):
                for n in range(lanes):
                    mean, inverse = means[t, p, r, n], inverses[t, p, r, n]
                    x0, x1 = votes[0, r, n] - mean, votes[1, r, n] - mean
                    x2, x3 = votes[2, r, n] - mean, votes[3, r, n] - mean
                    y0, y1, y2, y3 = wide[0, n] * x0, wide[1, n] * x1, wide[2, n] * x2, wide[3, n] * x3
                    dmeans[t, p, r, n] += inverse * ((y0 + y1) + (y2 + y3))
                    squares = (y0 * x0 + y1 * x1) + (y2 * x2 + y3 * x3)
                    dvariances[t, p, r, n] += HALF * inverse * inverse * squares
        for j in range(types):  # the logarithm of the logistic has slope 1 - activation
            dlogit[p, j] = -dspread[p, j] / (ONE + np.exp(logits[t, p, j]))


@compiled
def to_factors(
    poses, active, weights, offsets, child, kind, means, inverses, dmeans, dvariances, norms, shares, slopes, floor,
    dposes, dweights, four_votes, dvotes,
):  # fmt: skip
    """From the gradients of the votes to those of poses and W."""
    positions, slots = child.shape
    votes = four_votes[0]
    rows, lanes = votes.shape
    types, inner = shares.shape[3], weights.shape[1]
    iterations = means.shape[0]
    spread = floor / np.float32(slots)
    narrow = np.empty(types, np.float32)
    share, slope = np.empty(lanes, np.float32), np.zeros(lanes, np.float32)
    for p in range(positions):
        for i in range(slots):
            c = child[p, i]
            pose, weight, dweight = poses[c], weights[kind[i]], dweights[kind[i]]
            cast_votes(votes, pose, weight, offsets, i)
            dvotes[:, :] = ZERO
            for t in range(iterations):
                for j in range(types):
                    narrow[j] = (shares[t, p, i, j] * active[c] + spread) * norms[t, p, j]
                widen(share, narrow)
                if t < iterations - 1:
                    widen(slope, slopes[t, p, i])
                else:
                    slope[:] = ZERO  # no E-step after the last
                for r in range(rows):
                    for n in range(lanes):
                        x = votes[r, n] - means[t, p, r, n]
                        turn = TWO * share[n] * dvariances[t, p, r, n] - slope[n] * inverses[t, p, r, n]
                        dvotes[r, n] += share[n] * dmeans[t, p, r, n] + x * turn
            for r in range(rows):
                for n in range(lanes):  # a vote that was cut off does not move
                    dvotes[r, n] = dvotes[r, n] if abs(votes[r, n]) < LARGEST_VOTE else ZERO
                for k in range(inner):
                    found = ZERO
                    m = pose[r, k]
                    for n in range(lanes):
                        found += dvotes[r, n] * weight[k, n]
                        dweight[k, n] += m * dvotes[r, n]
                    dposes[c, r, k] += found


@compiled
def route_back(
    poses, active, weights, offsets, child, kind, first, beta_u, beta_a, temperatures, expected, floor, epsilon,
    means, inverses, masses, costs, logits, bases, sums, dmeans, dvariances, dlogit,
    dposes, dactive, dweights, dbeta_u, dbeta_a, shares, slopes, votes, dvotes, powers, scales,
):  # fmt: skip
    """All iterations of one image, backward.

    ``dmeans[-1]`` and ``dlogit`` (P, J) come with the gradients of the result, the rest of ``dmeans`` and
    ``dvariances`` with zeros; what begins with ``d`` after them is added to.
    """
    iterations, positions = means.shape[:2]
    types = beta_u.shape[0]
    dspread = np.zeros((positions, types), np.float32)
    dmass = np.empty((positions, types), np.float32)
    balance = np.empty((positions, types), np.float32)
    norms = np.empty((iterations, positions, types), np.float32)
    leaning = np.empty(active.shape[0], np.float32)
    for t in range(iterations - 1, -1, -1):
        finish_parents(
            t, means, inverses, masses, costs, beta_u, temperatures[t], expected, floor, epsilon,
            dmeans, dvariances, dlogit, dspread, dmass, balance, norms, dbeta_u, dbeta_a,
        )  # fmt: skip
        through_fit(
            t, poses, active, weights, offsets, child, kind, first, means, inverses, bases, sums,
            dmeans, dvariances, dmass, balance, norms, shares, slopes, leaning, dactive, votes, powers, scales,
        )  # fmt: skip
        if t > 0:
            through_assignment(
                t - 1, poses, weights, offsets, child, kind, means, inverses, logits, shares, slopes, leaning,
                dmeans, dvariances, dlogit, dspread, votes,
            )  # fmt: skip
    to_factors(
        poses, active, weights, offsets, child, kind, means, inverses, dmeans, dvariances, norms, shares, slopes, floor,
        dposes, dweights, votes, dvotes,
    )  # fmt: skip
