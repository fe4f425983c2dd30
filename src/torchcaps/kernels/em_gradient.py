"""Backward pass of fused EM routing for one image, as loops compiled by numba.

The gradient of a vote is a sum over the iterations of (a number per slot and parent) times (a vector per parent):

    dV = sum_t s_t (dmean_t + 2 (V - mean_t) dvariance_t)  -  sum_t dlog_t (V - mean_t) / variance_t

with s_t the normalized weight of the vote in the M-step and dlog_t the gradient of its log density in the E-step.
Names are those of ``em_loops``.
"""

from __future__ import annotations

import numpy as np

from torchcaps.kernels.em_loops import (
    LARGEST_VOTE,
    add_columns,
    compute_votes,
    exponential,
    fill_columns,
    log_densities,
)
from torchcaps.kernels.numba_support import HALF, ONE, TWO, ZERO, compiled, inner


@inner
def accumulate_pose_and_weight(poses, c, weights, k, dvotes, s, dposes, dweights):
    """Through V = M W: dM += dV W^T and dW += M^T dV."""
    _, inner, lanes = weights.shape
    rows = poses.shape[1]
    if rows == 4:  # one pass over dW for all rows
        for q in range(inner):
            m0, m1, m2, m3 = poses[c, 0, q], poses[c, 1, q], poses[c, 2, q], poses[c, 3, q]
            f0, f1, f2, f3 = ZERO, ZERO, ZERO, ZERO
            for n in range(lanes):
                d0, d1, d2, d3 = dvotes[s, 0, n], dvotes[s, 1, n], dvotes[s, 2, n], dvotes[s, 3, n]
                w = weights[k, q, n]
                f0 += d0 * w
                f1 += d1 * w
                f2 += d2 * w
                f3 += d3 * w
                dweights[k, q, n] += m0 * d0 + m1 * d1 + m2 * d2 + m3 * d3
            dposes[c, 0, q] += f0
            dposes[c, 1, q] += f1
            dposes[c, 2, q] += f2
            dposes[c, 3, q] += f3
        return
    for r in range(rows):
        for q in range(inner):
            found, m = ZERO, poses[c, r, q]
            for n in range(lanes):
                found += dvotes[s, r, n] * weights[k, q, n]
                dweights[k, q, n] += m * dvotes[s, r, n]
            dposes[c, r, q] += found


@inner
def accumulate_factor_gradients(
    p, start, votes, poses, active, weights, child, kind, means, inverses, dmeans, dvariances, norms, shares, slopes,
    floor, dposes, dweights, dvotes, columns, wide,
):  # fmt: skip
    """Accumulate the gradients of poses and W from those of a position's votes, four slots at a time.

    ``columns`` and ``wide`` hold the weights of the four slots, then their slopes.
    """
    slots = child.shape[1]
    _, rows, lanes = votes.shape
    types = shares.shape[3]
    iterations = means.shape[0]
    spread = floor / np.float32(slots)
    for i in range(0, slots, 4):
        here = min(4, slots - i)
        dvotes[:] = ZERO
        for t in range(start, iterations):
            for s in range(here):
                a = active[child[p, i + s]]
                for j in range(types):
                    columns[s, 0, j] = (shares[t, p, i + s, j] * a + spread) * norms[t, p, j]
                fill_columns(columns, s)
                if t < iterations - 1:
                    for j in range(types):
                        columns[4 + s, 0, j] = slopes[t, p, i + s, j]
                    fill_columns(columns, 4 + s)
                else:
                    for n in range(lanes):
                        wide[4 + s, n] = ZERO  # no E-step after the last
            for r in range(rows):
                for n in range(lanes):
                    mean, dmean = means[t, p, r, n], dmeans[t, p, r, n]
                    inverse, twice = inverses[t, p, r, n], TWO * dvariances[t, p, r, n]
                    x0, x1 = votes[i, r, n] - mean, votes[i + 1, r, n] - mean
                    x2, x3 = votes[i + 2, r, n] - mean, votes[i + 3, r, n] - mean
                    dvotes[0, r, n] += wide[0, n] * (dmean + x0 * twice) - wide[4, n] * inverse * x0
                    dvotes[1, r, n] += wide[1, n] * (dmean + x1 * twice) - wide[5, n] * inverse * x1
                    dvotes[2, r, n] += wide[2, n] * (dmean + x2 * twice) - wide[6, n] * inverse * x2
                    dvotes[3, r, n] += wide[3, n] * (dmean + x3 * twice) - wide[7, n] * inverse * x3
        for s in range(here):
            for r in range(rows):
                for n in range(lanes):  # a clamped vote has no gradient
                    dvotes[s, r, n] = dvotes[s, r, n] if abs(votes[i + s, r, n]) < LARGEST_VOTE else ZERO
            accumulate_pose_and_weight(poses, child[p, i + s], weights, kind[i + s], dvotes, s, dposes, dweights)


@inner
def statistics_backward(
    t, p, means, inverses, masses, costs, beta_u, temperature, expected, floor, epsilon,
    dmeans, dvariances, dlogit, dspread, dmass, balance, norms, dbeta_u, dbeta_a,
):  # fmt: skip
    """Gradients of one M-step's statistics, after everything that uses them has been differentiated."""
    _, _, rows, lanes = means.shape
    types = beta_u.shape[0]
    size = np.float32(rows * lanes // types)
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


@inner
def weigh_slopes(t, p, i, votes, means, dmeans, dvariances, wide):
    """Sum over rows of dmean V + dvariance (V - mean)^2: the gradient of the weight of the slot's vote."""
    _, rows, lanes = votes.shape
    if rows == 4:  # the sum over rows stays in registers
        for n in range(lanes):
            v0, v1, v2, v3 = votes[i, 0, n], votes[i, 1, n], votes[i, 2, n], votes[i, 3, n]
            x0, x1 = v0 - means[t, p, 0, n], v1 - means[t, p, 1, n]
            x2, x3 = v2 - means[t, p, 2, n], v3 - means[t, p, 3, n]
            near = dmeans[t, p, 0, n] * v0 + dmeans[t, p, 1, n] * v1 + dmeans[t, p, 2, n] * v2 + dmeans[t, p, 3, n] * v3
            near += dvariances[t, p, 0, n] * x0 * x0 + dvariances[t, p, 1, n] * x1 * x1
            wide[0, n] = near + dvariances[t, p, 2, n] * x2 * x2 + dvariances[t, p, 3, n] * x3 * x3
    else:
        for n in range(lanes):
            wide[0, n] = ZERO
        for r in range(rows):
            for n in range(lanes):
                x = votes[i, r, n] - means[t, p, r, n]
                wide[0, n] += dmeans[t, p, r, n] * votes[i, r, n] + dvariances[t, p, r, n] * x * x


@inner
def m_step_backward(
    t, p, votes, active, child, first, means, inverses, bases, sums, dmeans, dvariances, dmass, balance, norms,
    shares, blocks, slopes, leaning, dactive, columns, wide, powers, scales,
):  # fmt: skip
    """Backward through an M-step, to the children's activations and, in ``slopes``, to the assignments."""
    slots = child.shape[1]
    types = shares.shape[3]
    for i in range(slots):
        c = child[p, i]
        if t == 0:
            for j in range(types):
                shares[t, p, i, j] = first[c]
        else:
            log_densities(shares, t, p, i, votes, means, inverses, t - 1, bases, columns, wide)
            total = sums[t - 1, c]
            for j in range(types):
                shares[t, p, i, j] -= total
    if t > 0:
        for g in range(blocks.shape[2]):
            exponential(blocks, t, p, g, powers, scales)
    for i in range(slots):
        c = child[p, i]
        weigh_slopes(t, p, i, votes, means, dmeans, dvariances, wide)
        add_columns(columns, 0)
        felt, a = ZERO, active[c]
        for j in range(types):
            dshare = (columns[0, 0, j] - balance[p, j]) * norms[t, p, j] + dmass[p, j]
            felt += dshare * shares[t, p, i, j]
            columns[0, 0, j] = dshare * a
        dactive[c] += felt
        if t > 0:
            leaning[c] += felt * a
            for j in range(types):
                slopes[t - 1, p, i, j] = columns[0, 0, j]


@inner
def e_step_backward(
    t, p, votes, child, means, inverses, logits, shares, slopes, leaning, dmeans, dvariances, dlogit, dspread, columns,
    wide,
):  # fmt: skip
    """Backward through the E-step after M-step t, to its statistics; ``slopes`` become those of the log densities."""
    slots = child.shape[1]
    _, rows, lanes = votes.shape
    types = shares.shape[3]
    dspread[p, :] = ZERO
    for i in range(0, slots, 4):
        for s in range(4):
            if i + s < slots:
                lean = leaning[child[p, i + s]]
                for j in range(types):
                    slope = shares[t + 1, p, i + s, j] * (slopes[t, p, i + s, j] - lean)
                    slopes[t, p, i + s, j] = slope
                    dspread[p, j] -= slope
                    columns[s, 0, j] = slope
                fill_columns(columns, s)
            else:
                for n in range(lanes):
                    wide[s, n] = ZERO
        for r in range(rows):
            for n in range(lanes):
                mean, inverse = means[t, p, r, n], inverses[t, p, r, n]
                x0, x1 = votes[i, r, n] - mean, votes[i + 1, r, n] - mean
                x2, x3 = votes[i + 2, r, n] - mean, votes[i + 3, r, n] - mean
                y0, y1, y2, y3 = wide[0, n] * x0, wide[1, n] * x1, wide[2, n] * x2, wide[3, n] * x3
                dmeans[t, p, r, n] += inverse * ((y0 + y1) + (y2 + y3))
                squares = (y0 * x0 + y1 * x1) + (y2 * x2 + y3 * x3)
                dvariances[t, p, r, n] += HALF * inverse * inverse * squares
    for j in range(types):  # the logarithm of the logistic has slope 1 - activation
        dlogit[p, j] = -dspread[p, j] / (ONE + np.exp(logits[t, p, j]))


@compiled
def em_backward(
    poses, active, weights, offsets, child, kind, first, beta_u, beta_a, temperatures, expected, floor, epsilon,
    start, means, inverses, masses, costs, logits, bases, sums, dmeans, dvariances, dlogit,
    dposes, dactive, dweights, dbeta_u, dbeta_a, shares, blocks, slopes, votes, dvotes, columns, wide, powers, scales,
):  # fmt: skip
    """Iterations of one image, backward from the last to ``start``, whose assignments are constants.

    On entry ``dmeans[-1]`` and ``dlogit`` (P, J) hold the gradients of the result, and the rest of ``dmeans`` and
    ``dvariances`` are zero. The following arguments that begin with ``d`` are accumulated into.
    """
    iterations, positions = means.shape[:2]
    types = beta_u.shape[0]
    dspread = np.zeros((positions, types), np.float32)
    dmass = np.empty((positions, types), np.float32)
    balance = np.empty((positions, types), np.float32)
    norms = np.empty((iterations, positions, types), np.float32)
    leaning, felt = np.empty(active.shape[0], np.float32), np.zeros(active.shape[0], np.float32)
    for t in range(iterations - 1, start - 1, -1):
        for c in range(felt.shape[0]):
            leaning[c], felt[c] = felt[c], ZERO
        for p in range(positions):
            compute_votes(votes, p, poses, weights, offsets, child, kind)
            if t < iterations - 1:
                e_step_backward(
                    t, p, votes, child, means, inverses, logits, shares, slopes, leaning, dmeans, dvariances, dlogit,
                    dspread, columns, wide,
                )  # fmt: skip
            statistics_backward(
                t, p, means, inverses, masses, costs, beta_u, temperatures[t], expected, floor, epsilon,
                dmeans, dvariances, dlogit, dspread, dmass, balance, norms, dbeta_u, dbeta_a,
            )  # fmt: skip
            m_step_backward(
                t, p, votes, active, child, first, means, inverses, bases, sums, dmeans, dvariances, dmass, balance,
                norms, shares, blocks, slopes, felt, dactive, columns, wide, powers, scales,
            )  # fmt: skip
            if t == start:
                accumulate_factor_gradients(
                    p, start, votes, poses, active, weights, child, kind, means, inverses, dmeans, dvariances, norms,
                    shares, slopes, floor, dposes, dweights, dvotes, columns, wide,
                )  # fmt: skip
